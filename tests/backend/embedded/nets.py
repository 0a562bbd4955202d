"""The nets that tests of training share."""

from torch import nn
from torch.nn import functional as F


class Conv(nn.Module):
    """A small net with what ResNet has: strides, batch norm, in-place ReLU, a shortcut, pooling."""

    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, stride=2, padding=1, bias=False)
        self.n = nn.BatchNorm2d(8)
        self.b = nn.Conv2d(8, 8, 3, padding=1)
        self.pool = nn.MaxPool2d(3, 2, 1)
        self.fc = nn.Linear(8, 5)

    def forward(self, x):
        x = F.relu(self.n(self.a(x)), inplace=True)
        y = self.b(x)
        y += x
        return self.fc(F.adaptive_avg_pool2d(self.pool(F.relu(y)), 1).flatten(1))


class Attention(nn.Module):
    """A table and one encoder layer, as a classifier of five classes."""

    def __init__(self, dropout=0.0):
        super().__init__()
        self.table = nn.Embedding(11, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=dropout, batch_first=True, activation="gelu")
        self.norm = nn.LayerNorm(16)

    def forward(self, x):
        return self.norm(self.layer(self.table(x))).mean(1)[:, :5]

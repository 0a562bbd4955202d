import sys
from pathlib import Path

# The record factory is a plain module beside the tests.
sys.path.insert(0, str(Path(__file__).parent))

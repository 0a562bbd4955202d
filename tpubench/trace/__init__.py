"""Profiles: checked, summed up, shown in TensorBoard.

summary   what a .xplane.pb holds: steps, busy time, ops
report    a summary as text
logdir    captures in a folder
server    TensorBoard, on this machine only
"""

"""Op coverage: PyTorch's own OpInfo samples run on a backend's device, against the CPU.

sample     one call of an op on two devices, and how far apart the results are
opinfo     every sample of one entry of OpInfo's database, to one row
worker     the process that runs them
coverage   rows, their summary, and the file they are kept in
survey     the rows of a whole database, whatever becomes of a worker
"""

"""What a TPU would do with a program, read from what the TPU's own compiler made of it. No TPU is needed."""

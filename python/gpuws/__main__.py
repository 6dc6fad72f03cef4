"""`python -m gpuws`: the program gpuws."""

import os
import sys

from gpuws._program import find_gpuws_bin

if __name__ == "__main__":
    program = find_gpuws_bin()
    os.execv(program, [program, *sys.argv[1:]])

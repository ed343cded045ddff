"""rdna4sim: executes gfx1201 (RDNA4) machine code on the CPU, behind the C ABI of HIP."""

__version__ = "0.1.0"

"""What several heads can do that one cannot, and the reverse.

Import the modules by name: only ``certificates`` loads z3, and only it and ``algebra`` load sympy.
"""

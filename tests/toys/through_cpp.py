"""A kernel made on the command line, linked with a program in C++ that reads its inputs from a file and writes its result."""
import os
import subprocess
import tempfile

import numpy as np

BUILD = os.path.join("build", "release")


def through_cpp(kernel, flags, program, arrays, shape):
    """The result, float32 of this shape. In a tree that is built."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([os.path.join(BUILD, "tools", "polyhead-generate"), kernel, *flags, "-o", folder], check=True, stdout=subprocess.DEVNULL)
        source, inputs, main = (os.path.join(folder, name) for name in ("main.cpp", "inputs", "main"))
        with open(source, "w", encoding="utf-8") as file:
            file.write(program)
        with open(inputs, "wb") as file:
            file.write(b"".join(array.tobytes() for array in arrays))
        subprocess.run(["c++", "-std=c++17", "-I" + folder, "-Iruntime/include", source, os.path.join(folder, kernel + ".a"),
                        os.path.join(BUILD, "runtime", "libpolyhead.a"), "-lpthread", "-ldl", "-o", main], check=True)
        done = subprocess.run([main, inputs], check=True, stdout=subprocess.PIPE)
        return np.frombuffer(done.stdout, np.float32).reshape(shape)

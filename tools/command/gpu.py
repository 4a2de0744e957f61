"""What the machine has for GPU tests: an OpenCL platform, a Vulkan device, an NVIDIA GPU. Found without running polyhead."""
import ctypes
import glob
import os
import shutil

# Debian packages for testing GPU kernels on the CPU -> the program or API that shows whether the package is needed.
PACKAGES = {
    "pocl-opencl-icd": "opencl",        # an OpenCL device that is the CPU
    "ocl-icd-libopencl1": "opencl",     # finds OpenCL's devices
    "mesa-vulkan-drivers": "vulkan",    # lavapipe, a Vulkan device that is the CPU; WGSL's compiler needs one, too
    "libvulkan1": "vulkan",             # finds Vulkan's devices
    "spirv-tools": "spirv-val",         # checks SPIR-V
}


def library(name):
    try:
        return ctypes.CDLL(name)
    except OSError:
        return None


def has_opencl():
    """Whether an OpenCL platform is installed: the loader finds one. Its devices may still not work."""
    loader = library("libOpenCL.so.1")
    count = ctypes.c_uint32(0)
    return loader is not None and loader.clGetPlatformIDs(0, None, ctypes.byref(count)) == 0 and count.value > 0


def has_vulkan():
    """Whether a Vulkan driver is registered with an installed loader."""
    folders = ("/usr/share/vulkan/icd.d", "/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d")
    drivers = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES") or any(glob.glob(folder + "/*.json") for folder in folders)
    return bool(drivers) and library("libvulkan.so.1") is not None


def has_cuda():
    """Whether an NVIDIA driver is installed and has a device."""
    driver = library("libcuda.so.1")
    count = ctypes.c_int(0)
    return driver is not None and driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 and count.value > 0


ANSWERS = {"opencl": has_opencl, "vulkan": has_vulkan, "cuda": has_cuda, "spirv-val": lambda: shutil.which("spirv-val") is not None}


def missing_packages():
    """The Debian packages for GPU tests that are missing here."""
    absent = {name for name in set(PACKAGES.values()) if not ANSWERS[name]()}
    return [package for package, name in PACKAGES.items() if name in absent]


# Labels of tests that need more than .venv.
LABELS = {"opencl": ("opencl",), "vulkan": ("vulkan",), "gpu_sources": ("vulkan", "spirv-val")}


def labels_without_device():
    """{label: missing packages} of tests that cannot run on this machine."""
    missing = missing_packages()
    lacking = {label: [package for package in missing if PACKAGES[package] in needed] for label, needed in LABELS.items()}
    return {label: packages for label, packages in lacking.items() if packages}

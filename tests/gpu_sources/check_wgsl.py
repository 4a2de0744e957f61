"""Holds WGSL source to its language with naga, the compiler inside PyPI's wgpu, and makes a pipeline of every kernel."""
import os
import re
import tempfile

MAX_THREADS, MAX_SHARED_BYTES = 256, 16384  # what every WebGPU device has; more must be asked for
ENTRY = re.compile(r"@compute[^\n]*\nfn (\w+)\(")
_devices = []


def device():
    """One WebGPU device for the process; lavapipe where there is no GPU. Raises RuntimeError with one sentence."""
    if not _devices:
        os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
        try:
            import wgpu

            adapter = wgpu.gpu.request_adapter_sync(power_preference="low-power")
            _devices.append(adapter.request_device_sync(required_limits={
                "max-compute-invocations-per-workgroup": 1024, "max-compute-workgroup-size-x": 1024,
                "max-compute-workgroup-storage-size": 32768}))
        except ImportError as error:
            raise RuntimeError("PyPI's wgpu is not there (%s): ./polyhead setup --all installs it" % error) from error
        except Exception as error:  # wgpu has its own classes for each version
            raise RuntimeError("no WebGPU adapter (%s): ./polyhead setup installs Debian's mesa-vulkan-drivers" % first_line(error)) from error
    return _devices[0]


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if "error" in line.lower() and not line.startswith("Validation Error")]
    return (told or lines or [type(error).__name__])[0]


def entry_points(text):
    return ENTRY.findall(text)


def check(text, dtype, launches):
    """Sentences about one WGSL source; `launches` as launches.launches() reads them."""
    if not entry_points(text):
        return ["no compute entry point"]
    if dtype == "f32" and re.search(r"\bf16\b", text):
        return ["f16 in a kernel of f32"]
    gpu = device()
    try:
        module = gpu.create_shader_module(code=text)
    except Exception as error:
        return [first_line(error)]
    faults = []
    for name in entry_points(text):
        launch = launches.get(name)
        if launch is None:
            faults.append("%s: never launched" % name)
            continue
        threads = [launch["threads_" + axis] for axis in "xyz"]
        shared = launch["shared_bytes"]
        if None in threads or shared is None:
            faults.append("%s: threads %s and workgroup bytes %s are not constants" % (name, threads, shared))
            continue
        faults += limits(name, threads[0] * threads[1] * threads[2], shared)
        constants = {"wgsize_x": threads[0], "wgsize_y": threads[1], "wgsize_z": threads[2], "workgroup_mem_bytes": max(shared, 4)}
        try:
            gpu.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": name, "constants": constants})
        except Exception as error:
            faults.append("%s: %s" % (name, first_line(error)))
    return faults


def limits(name, threads, shared):
    faults = []
    if threads > MAX_THREADS:
        faults.append("%s: %d threads, WebGPU promises %d" % (name, threads, MAX_THREADS))
    if shared > MAX_SHARED_BYTES:
        faults.append("%s: %d bytes of workgroup memory, WebGPU promises %d" % (name, shared, MAX_SHARED_BYTES))
    return faults

# Written by packaging/python/records.py from docs/schema; do not edit.
from typing import Any, Generic, Literal, TypeVar

from typing_extensions import Self

_V = TypeVar("_V")

class Record:
    def __init__(self, data: dict[str, Any]) -> None: ...
    @classmethod
    def of_json(cls, text: str) -> Self: ...
    def to_dict(self) -> dict[str, Any]: ...

# Names map to values: which names there are is seen at run time.
class _Values(Record, Generic[_V]):
    def __getattr__(self, name: str) -> _V: ...

class AccountedProcess(Record):
    memory_max_bytes: int | None
    memory_utilization_percent: int | None
    pid: int | None
    running: bool | None
    time_ms: int | None
    utilization_percent: int | None

class Accounting(Record):
    buffer_count: int | None
    processes: tuple[AccountedProcess, ...] | None

class Activity(Record):
    decoder_percent: int | None
    encoder_frames_per_s: int | None
    encoder_latency_us: int | None
    encoder_percent: int | None
    encoder_session_count: int | None
    memory_percent: int | None
    performance_state: str | None
    throttle_code: int | None
    throttle_reasons: tuple[Literal['idle', 'applications clocks setting', 'software power cap', 'hardware slowdown', 'sync boost', 'software thermal slowdown', 'hardware thermal slowdown', 'hardware power brake slowdown', 'display clock setting'], ...] | None
    throttle_supported_code: int | None

class ApplicationClocks(Record):
    default_graphics_mhz: int | None
    default_memory_mhz: int | None
    graphics_mhz: int | None
    memory_mhz: int | None

class ClockChoice(Record):
    graphics_mhz: tuple[int, ...]
    memory_mhz: int

class Clocks(Record):
    graphics_max_mhz: int | None
    graphics_mhz: int | None
    memory_max_mhz: int | None
    memory_mhz: int | None
    sm_max_mhz: int | None
    sm_mhz: int | None
    video_max_mhz: int | None
    video_mhz: int | None

class Details(Record):
    absent: _Values[Literal['not-supported'] | Literal['not-permitted'] | Literal['not-found'] | Literal['too-old'] | Literal['deprecated'] | Literal['failed'] | Literal['no-answer'] | Literal['asleep'] | Literal['device-lost'] | Literal['not-recorded'] | Literal['implausible']]
    accounting: Accounting | None
    activity: Activity | None
    application_clocks: ApplicationClocks | None
    clocks: Clocks | None
    engines: Engines | None
    fabric: Fabric | None
    gsp_firmware: GspFirmware | None
    inforom: Inforom | None
    memory_errors: MemoryErrors | None
    memory_health: Health | None
    modes: Modes | None
    module_power: ModulePower | None
    nvlinks: tuple[NvLink, ...] | None
    operation_modes: OperationModes | None
    pcie: Pcie | None
    pcie_throughput: PcieThroughput | None
    platform: Platform | None
    power: Power | None
    power_readings: PowerReadings | None
    product: Product | None
    protected_memory: ProtectedMemory | None
    rare_modes: RareModes | None
    reset_status: ResetStatus | None
    sram_errors: SramErrors | None
    supported_clocks: SupportedClocks | None
    thermal: Thermal | None
    throttle_times: ThrottleTimes | None
    virtual_gpus: VirtualGpus | None

class DeviceProcess(Record):
    absent: _Values[Literal['not-supported'] | Literal['not-permitted'] | Literal['not-found'] | Literal['too-old'] | Literal['deprecated'] | Literal['failed'] | Literal['no-answer'] | Literal['asleep'] | Literal['device-lost'] | Literal['not-recorded'] | Literal['implausible']]
    cgroup: str | None
    command_line: tuple[str, ...] | None
    compute_instance_id: int | None
    cpu_time_ms: int | None
    gpu_instance_id: int | None
    listed: bool | None
    memory_bytes: int | None
    name: str | None
    namespace_pids: tuple[int, ...] | None
    parent_pid: int | None
    pid: int
    pod: Pod | None
    resident_bytes: int | None
    role: Literal['memory-user'] | Literal['monitor'] | Literal['display'] | Literal['daemon']
    service: str | None
    start_ticks: int | None
    started_at: str | None
    state: Literal['running'] | Literal['sleeping'] | Literal['uninterruptible'] | Literal['stopped'] | Literal['zombie'] | Literal['other'] | None
    uid: int | None
    user: str | None
    utilization_percent: int | None
    workload: Workload | None

class Engines(Record):
    jpeg_percent: int | None
    ofa_percent: int | None

class ErrorsByPlace(Record):
    cbu_count: int | None
    device_memory_count: int | None
    l1_cache_count: int | None
    l2_cache_count: int | None
    register_file_count: int | None
    sram_count: int | None
    texture_memory_count: int | None

class Fabric(Record):
    state: Literal['none'] | Literal['not-started'] | Literal['in-progress'] | Literal['completed'] | None
    status_code: int | None

class Failure(Record):
    remedy: str | None
    what: str

class ForeignProcess(Record):
    host_pid: int
    memory_bytes: int | None

class Gpu(Record):
    absent: _Values[Literal['not-supported'] | Literal['not-permitted'] | Literal['not-found'] | Literal['too-old'] | Literal['deprecated'] | Literal['failed'] | Literal['no-answer'] | Literal['asleep'] | Literal['device-lost'] | Literal['not-recorded'] | Literal['implausible']]
    bus_id: str | None
    defects: tuple[str, ...]
    details: Details | None
    display_active: bool | None
    error: Failure | None
    foreign_processes: tuple[ForeignProcess, ...]
    free: bool
    index: int
    leases: tuple[OnDevice, ...] | None
    memory_free_bytes: int | None
    memory_kind: str | None
    memory_listed_bytes: int | None
    memory_reserved_bytes: int | None
    memory_total_bytes: int | None
    memory_unexplained_bytes: int | None
    memory_used_bytes: int | None
    mig_devices: tuple[MigDevice, ...] | None
    mig_enabled: bool | None
    minor: int | None
    name: str | None
    persistence: bool | None
    power_draw_mw: int | None
    power_limit_mw: int | None
    processes: tuple[DeviceProcess, ...]
    temperature_c: int | None
    utilization_percent: int | None
    uuid: str | None

class GspFirmware(Record):
    enabled: bool | None
    enabled_by_default: bool | None

class Health(Record):
    banks_high_count: int | None
    banks_low_count: int | None
    banks_max_count: int | None
    banks_none_count: int | None
    banks_partial_count: int | None
    corrected_count: int | None
    corrected_lifetime_count: int | None
    remapped_corrected_count: int | None
    remapped_failure: bool | None
    remapped_pending: bool | None
    remapped_uncorrected_count: int | None
    retired_double_bit_count: int | None
    retired_pending: bool | None
    retired_single_bit_count: int | None
    sram_threshold_exceeded: bool | None
    uncorrected_count: int | None
    uncorrected_lifetime_count: int | None

class HeldFile(Record):
    access: str
    path: str

class Holder(Record):
    cgroup: str | None
    command_line: tuple[str, ...] | None
    cpu_time_ms: int | None
    files: tuple[HeldFile, ...]
    name: str | None
    namespace_pids: tuple[int, ...] | None
    parent_pid: int | None
    pid: int
    pod: Pod | None
    start_ticks: int | None
    started_at: str | None
    state: Literal['running'] | Literal['sleeping'] | Literal['uninterruptible'] | Literal['stopped'] | Literal['zombie'] | Literal['other'] | None
    uid: int | None
    user: str | None
    workload: Workload | None

class Inforom(Record):
    ecc: str | None
    image: str | None
    oem: str | None
    power: str | None
    valid: bool | None

class MemoryErrors(Record):
    corrected: ErrorsByPlace
    corrected_lifetime: ErrorsByPlace
    uncorrected: ErrorsByPlace
    uncorrected_lifetime: ErrorsByPlace

class MigDevice(Record):
    compute_instance_id: int | None
    gpu_instance_id: int | None
    memory_total_bytes: int | None
    memory_unexplained_bytes: int | None
    memory_used_bytes: int | None
    mig_index: int
    profile: str | None
    uuid: str | None

class Modes(Record):
    accounting: bool | None
    addressing: Literal['none'] | Literal['hmm'] | Literal['ats'] | None
    compute_mode: Literal['default'] | Literal['exclusive-thread'] | Literal['prohibited'] | Literal['exclusive-process'] | None
    display_attached: bool | None
    ecc: bool | None
    ecc_pending: bool | None
    mig_pending: bool | None

class ModulePower(Record):
    average_mw: int | None
    default_limit_mw: int | None
    enforced_limit_mw: int | None
    instant_mw: int | None
    limit_max_mw: int | None
    limit_min_mw: int | None
    limit_mw: int | None

class NvLink(Record):
    active: bool | None
    crc_error_count: int | None
    link_index: int
    recovery_count: int | None
    remote_bus_id: str | None
    replay_count: int | None
    version: str | None

class OnDevice(Record):
    command: str
    id: str
    lease_count: int
    mig_uuids: tuple[str, ...]
    pid: int
    share_bytes: int | None
    since: str
    uid: int
    user: str

class OperationModes(Record):
    current: Literal['all-on'] | Literal['compute'] | Literal['low-double-precision'] | None
    pending: Literal['all-on'] | Literal['compute'] | Literal['low-double-precision'] | None

class Pcie(Record):
    bar1_total_bytes: int | None
    bar1_used_bytes: int | None
    base_class: int | None
    device_generation_max: str | None
    device_id: int | None
    generation: str | None
    generation_max: str | None
    lane_count: int | None
    lane_max_count: int | None
    received_bytes: int | None
    replay_count: int | None
    sent_bytes: int | None
    sub_class: int | None
    subsystem_id: int | None

class PcieThroughput(Record):
    received_kib_per_s: int | None
    sent_kib_per_s: int | None

class Platform(Record):
    chassis_serial: str | None
    fabric_guid: str | None
    host_id: int | None
    module_id: int | None
    slot_number: int | None
    switched: bool | None
    tray_index: int | None

class Pod(Record):
    container: str | None
    evidence: Literal['uid'] | Literal['devices']
    name: str
    namespace: str

class Power(Record):
    default_limit_mw: int | None
    energy_mj: int | None
    limit_max_mw: int | None
    limit_min_mw: int | None
    limit_mw: int | None

class PowerReadings(Record):
    average_mw: int | None
    instant_mw: int | None
    managed: bool | None
    peak_share_percent: int | None

class Product(Record):
    architecture: str | None
    brand: str | None
    compute_capability: str | None
    core_count: int | None
    memory_bus_width_bits: int | None
    numa_node_id: int | None
    part_number: str | None
    serial: str | None
    vbios: str | None

class ProtectedMemory(Record):
    total_bytes: int | None
    used_bytes: int | None

class RareModes(Record):
    c2c: bool | None
    memory_encryption: bool | None
    memory_encryption_pending: bool | None

class ResetStatus(Record):
    drain_recommended: bool | None
    recovery: Literal['none'] | Literal['reset'] | Literal['reboot'] | Literal['drain-peers'] | Literal['drain-and-reset'] | Literal['recover-imex'] | Literal['other'] | None
    required: bool | None

class SramErrors(Record):
    l2_cache_count: int | None
    microcontroller_count: int | None
    multi_bit_count: int | None
    multi_bit_lifetime_count: int | None
    other_count: int | None
    parity_count: int | None
    parity_lifetime_count: int | None
    pcie_count: int | None
    sm_count: int | None

class SupportedClocks(Record):
    combinations: tuple[ClockChoice, ...] | None

class Thermal(Record):
    fan_speed_percent: int | None
    margin_c: int | None
    memory_c: int | None
    shutdown_c: int | None
    slowdown_c: int | None

class ThrottleTimes(Record):
    hardware_power_brake_ns: int | None
    hardware_thermal_ns: int | None
    software_power_cap_ns: int | None
    software_thermal_ns: int | None
    sync_boost_ns: int | None

class VirtualGpus(Record):
    fractional: bool | None
    heterogeneous: bool | None
    homogeneous_placements: bool | None
    mig_timeslicing: bool | None
    mig_timeslicing_enabled: bool | None
    timeslice_profiles: bool | None
    timeslice_sizes: bool | None

class Workload(Record):
    cgroup: str
    id: str
    kind: Literal['container'] | Literal['pod'] | Literal['slurm-job']

class Status(Record):
    cuda_version: str | None
    driver_error: Failure | None
    driver_version: str | None
    finding_count: int | None
    gpus: tuple[Gpu, ...]
    holder_error: Failure | None
    holder_search: Literal['done'] | Literal['not-needed'] | Literal['failed']
    holders: tuple[Holder, ...] | None
    hostname: str | None
    lease_error: Failure | None
    left_out_process_count: int | None
    machine: str | None
    origin: Literal['live'] | Literal['simulated'] | Literal['pasted'] | Literal['recorded'] | Literal['copied']
    possible_finding_count: int | None
    recording: str | None
    schema: Literal[1]
    taken_at: str | None
    unreadable_process_count: int | None
    visible_gpus: tuple[int, ...] | None

class Cleared(Record):
    cgroup: str | None
    command_line: tuple[str, ...] | None
    cpu_time_ms: int | None
    gpus: tuple[Device, ...]
    name: str | None
    namespace_pids: tuple[int, ...] | None
    parent_pid: int | None
    pid: int
    pod: Pod | None
    role: Literal['memory-user'] | Literal['monitor'] | Literal['display'] | Literal['daemon']
    start_ticks: int | None
    started_at: str | None
    state: Literal['running'] | Literal['sleeping'] | Literal['uninterruptible'] | Literal['stopped'] | Literal['zombie'] | Literal['other'] | None
    uid: int | None
    user: str | None
    why: str
    workload: Workload | None

class Device(Record):
    bus_id: str | None
    index: int
    minor: int | None
    uuid: str | None

class Finding(Record):
    confidence: Literal['possible'] | Literal['likely'] | Literal['high']
    evidence: tuple[str, ...]
    evidence_codes: tuple[Literal['unexplained-memory'] | Literal['memory-not-measured'] | Literal['memory-in-mig-instance'] | Literal['memory-used'] | Literal['holders-unknown'] | Literal['uninspected-processes'] | Literal['no-memory-user'] | Literal['mig-enabled'] | Literal['held-by-mps'] | Literal['mapped-by-display-or-daemon'] | Literal['pid-not-found'] | Literal['separate-pid-namespace'] | Literal['host-pids-listed'] | Literal['device-file-mapped'] | Literal['device-file-open'] | Literal['uses-device'] | Literal['started-just-now'] | Literal['main-thread-exited'] | Literal['own-pid-namespace'] | Literal['container'] | Literal['pod'] | Literal['slurm-job'] | Literal['stopped'] | Literal['holds-memory'] | Literal['memory-grows'] | Literal['never-computed'] | Literal['idle'] | Literal['no-compute-observed'] | Literal['host-busy'] | Literal['computes-on-other-device'] | Literal['parent-exited'] | Literal['multiprocessing-worker'] | Literal['ray-worker'] | Literal['may-be-daemon'] | Literal['zombie'] | Literal['uninterruptible-sleep'] | Literal['no-answer'] | Literal['driver-unavailable'] | Literal['device-lost'] | Literal['device-error'] | Literal['not-queried'] | Literal['unreadable-values'] | Literal['xid'] | Literal['sxid'] | Literal['reset-required'] | Literal['reboot-required'] | Literal['recovery-required'] | Literal['reset-recommended'] | Literal['reset-blocked'] | Literal['compute-prohibited'] | Literal['no-mig-instance'] | Literal['mig-mode-pending'] | Literal['ecc-mode-pending'] | Literal['uncorrected-ecc-errors'] | Literal['row-remapping-failed'] | Literal['sram-threshold-exceeded'] | Literal['no-spare-rows'] | Literal['memory-repair-pending'] | Literal['fewer-nvlinks'] | Literal['nvlinks-inactive'] | Literal['fabric-not-registered'] | Literal['fabric-registration-failed'] | Literal['fabric-unhealthy'] | Literal['slow-pcie-link'] | Literal['clocks-reduced'] | Literal['at-slowdown-temperature'] | Literal['below-slowdown-temperature'] | Literal['busy-without-process'] | Literal['low-power'] | Literal['persistence-mode-off'] | Literal['same-in-several-samples'], ...]
    gpus: tuple[Device, ...]
    kind: Literal['device-fault'] | Literal['memory-errors'] | Literal['nvlink-down'] | Literal['driver-error'] | Literal['no-mig-instance'] | Literal['compute-prohibited'] | Literal['ghost'] | Literal['driver-leak'] | Literal['not-permitted'] | Literal['foreign-namespace'] | Literal['listed-but-gone'] | Literal['zombie-holder'] | Literal['stuck-holder'] | Literal['orphan'] | Literal['hoarder'] | Literal['memory-growth'] | Literal['host-bound'] | Literal['busy-without-process'] | Literal['throttled'] | Literal['slow-pcie'] | Literal['pending-reset'] | Literal['blocked-reset']
    memory_bytes: int | None
    next: tuple[Next, ...]
    suspects: tuple[Suspect, ...]
    xids: tuple[int, ...]

class Next(Record):
    command: str
    what: str

class PastedFailure(Record):
    code: Literal['driver-not-running'] | Literal['nvml-mismatch'] | Literal['cuda-mismatch'] | Literal['no-devices'] | Literal['device-handle'] | Literal['reset-refused'] | Literal['no-library'] | Literal['blocked'] | Literal['not-permitted'] | Literal['mig-pending'] | Literal['nvlinks-inactive'] | Literal['lost-access'] | Literal['container-runtime'] | Literal['driver-out-of-memory'] | Literal['init-failed'] | Literal['module-not-loaded'] | Literal['task-hung'] | Literal['reboot-required'] | Literal['host-memory'] | Literal['memory-not-returned'] | Literal['device-busy'] | Literal['no-cuda-device'] | Literal['no-such-device'] | Literal['driver-too-old'] | Literal['no-kernel-image'] | Literal['memory-access'] | Literal['launch-timeout'] | Literal['ecc-error'] | Literal['fabric-not-ready'] | Literal['forked-process'] | Literal['mps-unavailable'] | Literal['nccl-error'] | Literal['cuda-unknown'] | Literal['gpu-hung'] | Literal['no-free-gpu'] | Literal['no-tool'] | Literal['bad-query'] | Literal['other']
    line: str
    meaning: str
    next: str
    steps: tuple[Next, ...]

class Suspect(Record):
    cgroup: str | None
    command_line: tuple[str, ...] | None
    confidence: Literal['possible'] | Literal['likely'] | Literal['high']
    cpu_time_ms: int | None
    evidence: tuple[str, ...]
    evidence_codes: tuple[Literal['unexplained-memory'] | Literal['memory-not-measured'] | Literal['memory-in-mig-instance'] | Literal['memory-used'] | Literal['holders-unknown'] | Literal['uninspected-processes'] | Literal['no-memory-user'] | Literal['mig-enabled'] | Literal['held-by-mps'] | Literal['mapped-by-display-or-daemon'] | Literal['pid-not-found'] | Literal['separate-pid-namespace'] | Literal['host-pids-listed'] | Literal['device-file-mapped'] | Literal['device-file-open'] | Literal['uses-device'] | Literal['started-just-now'] | Literal['main-thread-exited'] | Literal['own-pid-namespace'] | Literal['container'] | Literal['pod'] | Literal['slurm-job'] | Literal['stopped'] | Literal['holds-memory'] | Literal['memory-grows'] | Literal['never-computed'] | Literal['idle'] | Literal['no-compute-observed'] | Literal['host-busy'] | Literal['computes-on-other-device'] | Literal['parent-exited'] | Literal['multiprocessing-worker'] | Literal['ray-worker'] | Literal['may-be-daemon'] | Literal['zombie'] | Literal['uninterruptible-sleep'] | Literal['no-answer'] | Literal['driver-unavailable'] | Literal['device-lost'] | Literal['device-error'] | Literal['not-queried'] | Literal['unreadable-values'] | Literal['xid'] | Literal['sxid'] | Literal['reset-required'] | Literal['reboot-required'] | Literal['recovery-required'] | Literal['reset-recommended'] | Literal['reset-blocked'] | Literal['compute-prohibited'] | Literal['no-mig-instance'] | Literal['mig-mode-pending'] | Literal['ecc-mode-pending'] | Literal['uncorrected-ecc-errors'] | Literal['row-remapping-failed'] | Literal['sram-threshold-exceeded'] | Literal['no-spare-rows'] | Literal['memory-repair-pending'] | Literal['fewer-nvlinks'] | Literal['nvlinks-inactive'] | Literal['fabric-not-registered'] | Literal['fabric-registration-failed'] | Literal['fabric-unhealthy'] | Literal['slow-pcie-link'] | Literal['clocks-reduced'] | Literal['at-slowdown-temperature'] | Literal['below-slowdown-temperature'] | Literal['busy-without-process'] | Literal['low-power'] | Literal['persistence-mode-off'] | Literal['same-in-several-samples'], ...]
    name: str | None
    namespace_pids: tuple[int, ...] | None
    parent_pid: int | None
    pid: int
    pod: Pod | None
    start_ticks: int | None
    started_at: str | None
    state: Literal['running'] | Literal['sleeping'] | Literal['uninterruptible'] | Literal['stopped'] | Literal['zombie'] | Literal['other'] | None
    uid: int | None
    user: str | None
    workload: Workload | None

class UnknownUsers(Record):
    error: Failure
    gpu: Device

class Doctor(Record):
    cleared: tuple[Cleared, ...]
    cuda_version: str | None
    driver_error: Failure | None
    driver_version: str | None
    failures: tuple[PastedFailure, ...]
    findings: tuple[Finding, ...]
    hostname: str | None
    kernel_log_error: Failure | None
    left_out_count: int
    machine: str | None
    notes: tuple[str, ...]
    origin: Literal['live'] | Literal['simulated'] | Literal['pasted'] | Literal['recorded'] | Literal['copied']
    recording: str | None
    schema: Literal[1]
    taken_at: str | None
    unknown_users: tuple[UnknownUsers, ...]
    unreadable_process_count: int | None

class Lease(Record):
    alive: bool
    command: str
    count: int
    gpus: tuple[Device, ...]
    id: str
    lease_count: int
    pid: int
    share_bytes: int | None
    since: str
    uid: int
    unseen_gpus: tuple[str, ...]
    user: str
    users: tuple[User, ...]
    within: str | None

class PassedOver(Record):
    bus_id: str | None
    index: int
    minor: int | None
    uuid: str | None
    why: str

class User(Record):
    gpu_uuid: str
    memory_bytes: int | None
    name: str | None
    pid: int

class Waiting(Record):
    ahead_count: int
    alive: bool
    command: str
    count: int
    id: str
    is_stopped: bool
    lacks: tuple[PassedOver, ...]
    pid: int
    share_bytes: int | None
    since: str
    uid: int
    user: str
    within: str | None

class Leases(Record):
    leases: tuple[Lease, ...]
    machine: str | None
    origin: Literal['live'] | Literal['simulated'] | Literal['pasted'] | Literal['recorded'] | Literal['copied']
    queue: tuple[Waiting, ...]
    schema: Literal[1]
    taken_at: str

class Claimed(Record):
    gpus: tuple[Device, ...]
    lease: str
    origin: Literal['live'] | Literal['simulated'] | Literal['pasted'] | Literal['recorded'] | Literal['copied']
    passed_over: tuple[PassedOver, ...]
    schema: Literal[1]

class Event(Record):
    allocated: str | None
    allocated_bytes: int | None
    allocator: str | None
    backend: str | None
    bins: tuple[tuple[Any, ...], ...] | None
    cached: str | None
    cached_bytes: int | None
    chunks: tuple[tuple[Any, ...], ...] | None
    diagnosis: Why
    engine: Literal['pytorch'] | Literal['tensorflow'] | Literal['xla'] | Literal['jax/xla'] | Literal['cupy'] | Literal['rmm'] | Literal['llama.cpp'] | Literal['vllm'] | Literal['paddle'] | Literal['onnxruntime'] | Literal['tensorrt'] | Literal['cuda.jl'] | Literal['sglang'] | Literal['tensorrt-llm'] | Literal['triton'] | Literal['tgi'] | Literal['lmdeploy'] | Literal['ollama'] | Literal['exllama'] | Literal['deepspeed'] | Literal['accelerate'] | Literal['bitsandbytes'] | Literal['unsloth'] | Literal['comfyui'] | Literal['hami'] | Literal['nccl'] | Literal['ascend'] | Literal['kernel'] | Literal['systemd-oomd'] | Literal['slurm'] | Literal['ray'] | Literal['kubelet'] | Literal['nvidia-driver'] | Literal['cuda'] | Literal['host'] | None
    facts: _Values[float]
    framework: Literal['pytorch'] | Literal['tensorflow'] | Literal['xla'] | Literal['jax/xla'] | Literal['cupy'] | Literal['rmm'] | Literal['llama.cpp'] | Literal['vllm'] | Literal['paddle'] | Literal['onnxruntime'] | Literal['tensorrt'] | Literal['cuda.jl'] | Literal['sglang'] | Literal['tensorrt-llm'] | Literal['triton'] | Literal['tgi'] | Literal['lmdeploy'] | Literal['ollama'] | Literal['exllama'] | Literal['deepspeed'] | Literal['accelerate'] | Literal['bitsandbytes'] | Literal['unsloth'] | Literal['comfyui'] | Literal['hami'] | Literal['nccl'] | Literal['ascend'] | Literal['kernel'] | Literal['systemd-oomd'] | Literal['slurm'] | Literal['ray'] | Literal['kubelet'] | Literal['nvidia-driver'] | Literal['cuda'] | Literal['host']
    free: str | None
    free_bytes: int | None
    gpu_index: int | None
    ladder: tuple[str, ...] | None
    ladder_bytes: tuple[int | None, ...] | None
    limit: str | None
    limit_bytes: int | None
    line: int
    listed_block_count: int
    other: str | None
    other_bytes: int | None
    part: str | None
    pool: Pool | None
    printed_count: int
    private_pools: str | None
    private_pools_bytes: int | None
    processes: tuple[Process, ...]
    processes_bytes: tuple[int | None, ...]
    rematerialization: Rematerialization | None
    remedies: tuple[Remedy, ...]
    reserved_total: str | None
    reserved_total_bytes: int | None
    reserved_unallocated: str | None
    reserved_unallocated_bytes: int | None
    stats: _Values[int] | None
    sum_in_use: str | None
    sum_in_use_bytes: int | None
    tensor_bytes: int | None
    tensor_shape: tuple[int, ...] | None
    tensor_type: str | None
    this_process: str | None
    this_process_bytes: int | None
    total: str | None
    total_bytes: int | None
    tried: str | None
    tried_bytes: int | None

class Head(Record):
    cuda_version: str | None
    driver_error: Failure | None
    driver_version: str | None
    hostname: str | None
    machine: str | None
    origin: Literal['live'] | Literal['simulated'] | Literal['pasted'] | Literal['recorded'] | Literal['copied']
    recording: str | None
    schema: Literal[1]
    taken_at: str | None
    unreadable_process_count: int | None

class Pool(Record):
    available_bytes: int | None
    held_bytes: int | None
    limit_bytes: int | None

class Process(Record):
    mem: str
    pid: int

class Rematerialization(Record):
    limit: str
    limit_bytes: int | None
    reduced: str | None
    reduced_bytes: int | None

class Remedy(Record):
    kind: Literal['environment'] | Literal['command'] | Literal['option'] | Literal['code'] | Literal['work']
    set: str | None
    why: str

class Why(Record):
    cause: Literal['larger-than-device'] | Literal['too-big'] | Literal['full'] | Literal['fragmented'] | Literal['other-processes'] | Literal['many-contexts'] | Literal['unnamed'] | Literal['limit'] | Literal['buffer-limit'] | Literal['disturbed'] | Literal['impossible-figure'] | Literal['taken-before'] | Literal['host-memory'] | Literal['no-failure'] | Literal['free-enough'] | Literal['not-told']
    context_bytes: int | None
    contradictions: tuple[str, ...]
    held_bytes: int | None
    lacking_bytes: int | None
    lacking_without_cache_bytes: int | None
    needed_bytes: int | None
    now: tuple[str, ...]
    others_bytes: int | None
    reasons: tuple[str, ...]
    unnamed_bytes: int | None
    verdict: str

class Explained(Record):
    events: tuple[Event, ...]
    is_cut: bool
    looked_at: Head | None
    schema: Literal[1]

class Fit(Record):
    device_index: int
    event_count: int
    file: str
    fits: bool | None
    live_bytes: int
    mem_mib: int
    policies: tuple[Least, ...]
    refused_bytes: int | None
    setting: str | None

class Least(Record):
    exact: bool
    least_bytes: int
    policy: str
    replay_count: int
    share_percent: float | None
    unlimited_reserved_bytes: int
    wasted_bytes: int

class Together(Record):
    files: tuple[str, ...]
    mem_mib: int

class Fitted(Record):
    context_bytes: int
    device_memory_bytes: int | None
    jobs: tuple[Fit, ...]
    schema: Literal[1]
    together: tuple[Together, ...] | None

class Action(Record):
    name: str
    outcome: _Values[Any]
    pid: int
    signals: tuple[Literal['SIGTERM'] | Literal['SIGKILL'], ...]

class Execution(Record):
    actions: tuple[Action, ...]
    complete: bool
    memory: tuple[Memory, ...]
    newcomers: tuple[Newcomer, ...] | None
    stopped: str | None

class Expected(Record):
    bus_id: str | None
    index: int
    memory_bytes: int | None
    minor: int | None
    uuid: str | None

class JobMark(Record):
    id: str
    uid: int

class Memory(Record):
    after_bytes: int | None
    before_bytes: int | None
    bus_id: str | None
    by_others_bytes: int | None
    came_back: bool
    doubt: Literal['not-listed'] | _Values[Any] | Literal['unseen'] | None
    expected_bytes: int | None
    freed_bytes: int | None
    index: int
    minor: int | None
    seen_after_ms: int
    uuid: str | None

class Newcomer(Record):
    name: str | None
    pid: int
    why: Literal['took-the-device'] | Literal['joined-the-scope']

class ProcessKey(Record):
    pid: int
    start_ticks: int | None

class Refused(Record):
    name: str | None
    pid: int
    why: Literal['init'] | Literal['kernel-thread'] | Literal['own-ancestry'] | _Values[Any] | Literal['protected'] | Literal['unknown-identity'] | Literal['not-the-same'] | Literal['holds-nothing'] | Literal['only-listed'] | Literal['other-user'] | Literal['not-seen'] | Literal['leads-session'] | Literal['login-session'] | Literal['parent-not-seen'] | Literal['scope-not-seen'] | Literal['no-container']

class Target(Record):
    cgroup: str | None
    command_line: tuple[str, ...] | None
    cpu_time_ms: int | None
    membership: _Values[Any]
    name: str | None
    namespace_pids: tuple[int, ...] | None
    on_account_of_pid: int
    parent_pid: int | None
    pid: int
    pod: Pod | None
    start_ticks: int | None
    started_at: str | None
    state: Literal['running'] | Literal['sleeping'] | Literal['uninterruptible'] | Literal['stopped'] | Literal['zombie'] | Literal['other'] | None
    uid: int | None
    user: str | None
    warnings: tuple[str, ...]
    why: str
    workload: Workload | None

class Reap(Record):
    cuda_version: str | None
    driver_error: Failure | None
    driver_version: str | None
    expected: tuple[Expected, ...]
    grace_ms: int
    hostname: str | None
    left_out: tuple[Refused, ...]
    machine: str | None
    origin: Literal['live'] | Literal['simulated'] | Literal['pasted'] | Literal['recorded'] | Literal['copied']
    recording: str | None
    refused: tuple[Refused, ...]
    report: Execution | None
    schema: Literal[1]
    taken_at: str | None
    targets: tuple[Target, ...]
    unreadable_process_count: int | None

class Booked(Record):
    energy_mj: int
    held_ms: int
    idle_ms: int
    peak_memory_bytes: int
    used_ms: int

class Gap(Record):
    from_: str
    to: str

class ReportGpu(Record):
    energy_mj: int
    held_ms: int
    idle_ms: int
    index: int
    name: str | None
    observed_ms: int
    peak_memory_bytes: int
    unattributed_energy_mj: int
    unmeasured_ms: int
    used_ms: int
    uuid: str | None

class Job(Record):
    energy_mj: int
    held_ms: int
    idle_ms: int
    kind: Literal['slurm-job'] | Literal['pod'] | Literal['container'] | Literal['service'] | Literal['command'] | Literal['others'] | Literal['unknown'] | Literal['unlisted']
    name: str | None
    peak_memory_bytes: int
    uid: int | None
    used_ms: int
    user: str | None

class OneDay(Record):
    day: str
    energy_mj: int
    held_ms: int
    idle_ms: int
    peak_memory_bytes: int
    used_ms: int

class ReportUser(Record):
    energy_mj: int
    held_ms: int
    idle_ms: int
    peak_memory_bytes: int
    uid: int | None
    unlisted: bool
    used_ms: int
    user: str | None

class Report(Record):
    clock_set_back_count: int
    damage: tuple[str, ...]
    days: tuple[OneDay, ...]
    first_sample_at: str | None
    gap_count: int
    gap_ms: int
    gaps: tuple[Gap, ...]
    gpus: tuple[ReportGpu, ...]
    hostname: str | None
    jobs: tuple[Job, ...]
    last_sample_at: str | None
    machine: str | None
    origin: Literal['live'] | Literal['simulated'] | Literal['pasted'] | Literal['recorded'] | Literal['copied']
    other_machines: tuple[str, ...]
    sample_count: int
    schema: Literal[1]
    total: Booked
    unattributed_energy_mj: int
    users: tuple[ReportUser, ...]
    watched_ms: int

class Described(Record):
    architecture: str
    layer_count: int
    name: str
    parameter_count: int
    quantization: str | None
    trained_context_tokens: int | None
    weights_bytes: int

class Needs(Record):
    buffer_bytes: int
    context_bytes: int
    host_bytes: int
    overhead_bytes: int
    total_bytes: int
    weights_bytes: int

class PlacedLayer(Record):
    context_bytes: int
    name: str
    room: str | None
    weights_bytes: int

class Room(Record):
    buffer_bytes: int
    context_bytes: int
    free_bytes: int
    kind: Literal['gpu'] | Literal['cpu'] | Literal['disk']
    lacking_bytes: int
    layer_count: int
    name: str
    overhead_bytes: int
    used_bytes: int
    weights_bytes: int

class TensorParallel(Record):
    activation_bytes: int
    cache_bytes: int
    cache_tokens: int | None
    fits: bool
    gpu_count: int
    memory_percent: int
    weights_bytes: int

class Tried(Record):
    encoding: str | None
    fits: bool
    largest_context_tokens: int | None
    room_count: int | None
    total_bytes: int

class PlacedModel(Record):
    context_tokens: int
    doubts: tuple[str, ...]
    encodings: tuple[Tried, ...]
    file: str
    fits: bool
    is_optimal: bool | None
    layers: tuple[PlacedLayer, ...]
    machine: str | None
    model: Described
    needs: Needs
    notes: tuple[str, ...]
    reasons: tuple[str, ...]
    rooms: tuple[Room, ...]
    schema: Literal[1]
    sequence_count: int
    tensor_parallel: tuple[TensorParallel, ...]
    tensor_parallel_count: int | None
    unavailable: tuple[str, ...]
    verdict: Literal['fits'] | Literal['does-not-fit'] | Literal['estimate']

class PlacedGraphDevice(Record):
    name: str
    node_count: int

class Node(Record):
    because_of: str | None
    device: str
    explanation: str
    name: str
    op: str
    reason: Literal['assigned'] | Literal['requested'] | Literal['colocated'] | Literal['follows-input'] | Literal['follows-consumers'] | Literal['first-with-kernel'] | Literal['first-device'] | Literal['only-with-kernel'] | Literal['soft-fallback'] | Literal['other']
    requested: str | None

class PlacedGraph(Record):
    devices: tuple[PlacedGraphDevice, ...]
    file: str
    machine: str | None
    nodes: tuple[Node, ...]
    notes: tuple[str, ...]
    schema: Literal[1]
    warnings: tuple[str, ...]

class Copied(Record):
    end_ns: int
    from_: str
    node: str
    output_index: int
    size_bytes: int
    start_ns: int
    to: str

class Processor(Record):
    busy_ns: int
    memory_bytes: int | None
    name: str
    node_count: int
    peak_memory_bytes: int
    speed_ratio: float

class Slot(Record):
    device: str
    end_ns: int
    explanation: str
    name: str
    op: str
    reason: Literal['fixed'] | Literal['only'] | Literal['group'] | Literal['earliest'] | Literal['searched']
    start_ns: int

class ScheduledGraph(Record):
    devices: tuple[Processor, ...]
    file: str
    machine: str | None
    makespan_ns: int
    nodes: tuple[Slot, ...]
    notes: tuple[str, ...]
    schema: Literal[1]
    transfers: tuple[Copied, ...]

class Value(Record):
    dtype: str | None
    elements: tuple[float | int | Literal['NaN'] | Literal['Infinity'] | Literal['-Infinity'], ...] | None
    name: str
    shape: tuple[int, ...] | None

class RanGraph(Record):
    file: str
    inter_op_threads: int
    intra_op_threads: int
    machine: str | None
    makespan_ns: int | None
    notes: tuple[str, ...]
    schema: Literal[1]
    unsupported: _Values[int]
    values: tuple[Value, ...]

class IsolatedUse(Record):
    index: int
    peak_memory_bytes: int | None

class IsolatedReport(Record):
    exit_code: int
    limit_hit: bool
    elapsed_ms: int
    gpus: tuple[IsolatedUse, ...]
    ended_pids: tuple[int, ...]
    left_pids: tuple[int, ...]
    memory_back: bool | None
    error: str | None

//! Pasted texts, each with its conclusions, figures and advice.

use gpu_core::Timestamp;
use gpu_report::wording;
use gpu_text::{moment, sections, shows_health, snapshot, unattributed};

/// The whole output for a pasted text, one line each.
fn output(text: &str) -> String {
    let documents = sections(text.as_bytes());
    let at = moment(&documents, Timestamp(1_900_000_000_000));
    let now = snapshot(&documents, at);
    let codes = unattributed(&documents);
    let mut output = Vec::new();
    for paragraph in wording::paste::failures(&now, &codes) {
        output.push(format!("{} {}", paragraph.head.text(), paragraph.text));
    }
    if !shows_health(&documents, &now) {
        output.push(gpu_text::lacking(&documents).to_owned());
        return output.join("\n");
    }
    let mut diagnosis = gpu_reaper::diagnose(std::slice::from_ref(&now));
    diagnosis.join_ghosts();
    for finding in &diagnosis.findings {
        let kind = wording::kind(finding.kind).to_uppercase();
        let subject = wording::doctor::subject(&now, finding);
        output.push(format!("{kind} {subject}: {}", wording::confidence(finding.confidence)));
        output.extend(finding.evidence.iter().map(|evidence| evidence.text.clone()));
        for advice in &finding.advice {
            let (command, what) = wording::advice(advice, "");
            output.push(format!("{command}   {what}"));
        }
    }
    output.extend(wording::doctor::left_out(&now));
    output.push(format!("{} findings", diagnosis.findings.len()));
    output.join("\n")
}

/// Asserts that the output for a text has these parts, and lacks those after `!`.
fn assert_output(cases: &[(&str, &[&str])]) {
    for (text, parts) in cases {
        let output = output(text);
        for part in *parts {
            match part.strip_prefix('!') {
                Some(part) => assert!(!output.contains(part), "{part:?} of {text}\n--\n{output}"),
                None => assert!(output.contains(part), "{part:?} of {text}\n--\n{output}"),
            }
        }
    }
}

const RULE: &str =
    "+-----------------------------------------------------------------------------+\n";

/// A table with these rows of devices and of MIG devices, and an empty list of processes.
fn table(devices: &str, migs: &str) -> String {
    let migs = match migs {
        "" => String::new(),
        migs => format!(
            "{RULE}| MIG devices:                                                                |\n\
             |==================+======================+===========+=======================|\n\
             {migs}{RULE}\n"
        ),
    };
    format!(
        "{RULE}| NVIDIA-SMI 550.54.15    Driver Version: 550.54.15    CUDA Version: 12.4     |\n\
         |===============================+======================+======================|\n\
         {devices}{RULE}\n{migs}\
         {RULE}| Processes:                                                                  |\n\
         |  GPU   GI   CI        PID   Type   Process name                  GPU Memory |\n\
         |=============================================================================|\n\
         |  No running processes found                                                 |\n{RULE}"
    )
}

fn device(memory: &str, load: &str, mig: &str) -> String {
    format!(
        "|   0  NVIDIA A30           On   | 00000000:3B:00.0 Off |                    0 |\n\
         | N/A   31C    P0    44W / 165W | {memory:>20} | {load:>7}      Default |\n\
         |                               |                      | {mig:>20} |\n"
    )
}

#[test]
fn logs_are_judged_by_their_own_time() {
    let lost = "NVRM: Xid (PCI:0000:3b:00): 79, pid=7, name=serve, GPU has fallen off the bus.\n";
    let heading = "Wed Feb  5 18:00:00 2020\n";
    assert_output(&[
        (
            &format!("2020-02-05T17:30:00+0100 node4 kernel: {lost}"),
            &["DRIVER ERROR a GPU that is not listed: likely", "Xid 79", "on 2020-02-05 16:30 UTC"],
        ),
        (
            &format!("[Wed Feb  5 17:30:00 2020] {lost}"),
            &["likely", "on 2020-02-05 17:30 local time"],
        ),
        (
            &format!("{heading}Feb  5 17:30:00 node4 kernel: {lost}"),
            &["on 2020-02-05 17:30 local time"],
        ),
        // The time zone of one line is the machine's.
        (
            &format!("2020-02-05T18:00:00+0100 n kernel: x\n[Wed Feb  5 17:30:00 2020] {lost}"),
            &["on 2020-02-05 16:30 UTC"],
        ),
        // The clock, in March 2030, gives the year.
        (
            &format!("Feb  5 17:30:00 node4 kernel: {lost}"),
            &["likely", "on 2030-02-05 17:30 local time there"],
        ),
        (
            &format!("Dec  5 17:30:00 node4 kernel: {lost}"),
            &["on 2029-12-05 17:30 local time there"],
        ),
        (&format!("[  812.5] {lost}"), &["likely", "at an unknown time"]),
        // Any text may precede the message.
        (
            &format!("<2>1 2020-02-05T17:30:00.5+01:00 node4 kernel - - - {lost}"),
            &["Xid 79", "on 2020-02-05 16:30 UTC", "!FAILURE"],
        ),
        (
            &format!("time=2020-02-05T16:30:00Z level=err msg=\"{}\" unit=kernel\n", lost.trim()),
            &["Xid 79: the GPU has fallen off the bus, on 2020-02-05 16:30 UTC, by serve", "!unit"],
        ),
        (
            &format!("  Warning  XidError  5m  node-problem-detector  {lost}"),
            &["Xid 79", "at an unknown time", "!FAILURE"],
        ),
        (&format!("| 2020-02-05 16:30:00 | node4 | {} |\n", lost.trim()), &["Xid 79", "16:30"]),
        // Old messages of the text itself are reported, as weak findings.
        (
            &format!(
                "2020-01-05T10:00:00Z n kernel: {lost}\
                 2020-02-05T10:00:00Z n kernel: NVRM: Xid (PCI:0000:5e:00): 119, Timeout\n"
            ),
            &[
                "Xid 79: the GPU has fallen off the bus, on 2020-01-05 10:00 UTC, by serve; 31 days \
                 before the last time in the text",
                "Xid 119",
                "2 findings",
            ],
        ),
    ]);
}

#[test]
fn consequences_accuse_their_cause() {
    let xid = |bus: &str, text: &str| format!("[9.5] NVRM: Xid (PCI:0000:{bus}:00): {text}\n");
    let removed = "45, pid=9, name=serve, Ch 00000003";
    assert_output(&[
        (
            &xid("3b", "45, pid=9, name=serve, Ch 00000003 caused by previous Xid 147"),
            &[
                "a GPU that is not listed: likely",
                "Xid 147: NVLink error, named as the cause by its consequences",
                "Xid 45: channels removed after another error or a kill: a consequence of Xid 147",
                "!fault of the program",
                "!look for the error in its program",
            ],
        ),
        (
            &format!(
                "{}{}{}",
                xid("3b", "95, pid=9, name=serve, Uncontained: LTC TAG"),
                xid("3b", removed),
                xid("5e", removed)
            ),
            &["1 findings", "Xid 95", "2 times: a consequence of Xid 95", "!fault of the program"],
        ),
        // The driver may log the removed channels first.
        (
            &format!("{}{}", xid("3b", removed), xid("3b", "79, GPU has fallen off the bus.")),
            &["1 findings", "Xid 79", "consequence of Xid 79", "!program was ended"],
        ),
        (
            &format!("{}{}", xid("3b", "31, pid=9, name=serve, Ch 3"), xid("3b", removed)),
            &["1 findings", "Xid 31", "usually a bug in the program", "consequence of Xid 31"],
        ),
        (&xid("3b", removed), &["Xid 45", "most likely the program was killed", "!fault of the"]),
    ]);
}

#[test]
fn switch_errors_are_shown_with_their_severity() {
    let sxid = |code: u32, text: &str| {
        format!("[7.25] nvidia-nvswitch2: SXid (PCI:0000:c3:00.0): {code}, {text}\n")
    };
    assert_output(&[
        (
            &format!(
                "{}{}",
                sxid(11_004, "Fatal, Link 5 ingress"),
                sxid(11_004, "Data {0x1, 0x2}")
            ),
            &[
                "DRIVER ERROR an NVSwitch: likely",
                "NVSwitch 00000000:C3:00.0: SXid 11004, fatal: Link 5 ingress, at",
                "sudo nvidia-smi -r",
                "!2 times",
            ],
        ),
        (
            &sxid(12_028, "Non-fatal, Link 32 egress"),
            &["an NVSwitch: possible", "12028, not fatal", "nvidia-smi nvlink -e"],
        ),
        (&sxid(20_034, "Data {0x1}"), &["of unknown severity"]),
        (
            &format!(
                "[7.1] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.\n{}",
                sxid(20_034, "Fatal, Link 9 LTSSM Fault Up")
            ),
            &["an NVSwitch: possible", "a GPU failed before it", "Xid 79"],
        ),
    ]);
}

#[test]
fn memory_of_mig_instances_counts_where_their_gpu_has_none() {
    let instance = |id: u32, used: u32| {
        format!(
            "|  0   {id:>2}   0   {}  | {used:>8}MiB /  5952MiB | 14      0 |  1   0    0    0    0 |\n",
            id - 3
        )
    };
    let log = "\
==============NVSMI LOG==============
GPU 00000000:3B:00.0
    Product Name                 : Example
    MIG Mode
        Current                  : Enabled
    MIG Device
        Index                    : 0
        GPU Instance ID          : 3
        Compute Instance ID      : 0
        FB Memory Usage
            Total                : 5952 MiB
            Used                 : 5500 MiB
    FB Memory Usage
        Total                    : [Insufficient Permissions]
        Used                     : [Insufficient Permissions]
    Processes                    : None
";
    let xml = "<nvidia_smi_log><gpu id=\"00000000:3B:00.0\"><product_name>Example</product_name>\
        <mig_mode><current_mig>Enabled</current_mig></mig_mode><mig_devices><mig_device>\
        <index>0</index><gpu_instance_id>3</gpu_instance_id>\
        <compute_instance_id>0</compute_instance_id><fb_memory_usage><total>5952 MiB</total>\
        <used>5500 MiB</used></fb_memory_usage></mig_device></mig_devices>\
        <fb_memory_usage><total>N/A</total><used>N/A</used></fb_memory_usage>\
        <processes></processes></gpu></nvidia_smi_log>\n";
    let csv = "index, memory.used [MiB], memory.total [MiB], mig.mode.current\n\
               0, [N/A], [N/A], Enabled\n\n";
    let migs = format!("{}{}", instance(3, 5500), instance(4, 12));
    let whole = table(&device("N/A", "N/A", "Enabled"), &migs);
    let ghost = &["GHOST GPU 0", "5,500 of 5,952 MiB used there, none by listed processes"][..];
    let only_migs = &whole[whole.find("| MIG devices").unwrap()..];
    assert_output(&[
        (&whole, ghost),
        (only_migs, ghost),
        (&format!("{csv}{only_migs}"), ghost),
        (log, ghost),
        (xml, ghost),
        (&table(&device("N/A", "N/A", "Enabled"), &instance(3, 12)), &["0 findings"]),
        // The figure of the GPU takes precedence.
        (&table(&device("24MiB / 24576MiB", "N/A", "Enabled"), &instance(3, 12)), &["0 findings"]),
    ]);
}

#[test]
fn empty_list_of_container_is_no_proof() {
    let busy = table(&device("900MiB / 24576MiB", "64%", "Disabled"), "");
    let idle = table(&device("900MiB / 24576MiB", "0%", "Disabled"), "");
    assert_output(&[
        (
            &busy,
            &[
                "NOT VISIBLE TO YOU GPU 0",
                "!GHOST",
                "possible",
                "64 % busy: an unlisted process is computing, so this is no leftover",
                "on the host, outside any container",
            ],
        ),
        (
            &idle,
            &["GHOST GPU 0", "inside a container or WSL, nvidia-smi lists no process", "!busy"],
        ),
        (
            &table(&device("17592186000000MiB / 24576MiB", "0%", "Disabled"), ""),
            &["GPU 0: the reported memory use exceeds the installed memory", "0 findings"],
        ),
    ]);
}

#[test]
fn health_of_fabric_and_recovery_are_judged() {
    let log = |recovery: &str, health: &str| {
        format!(
            "==============NVSMI LOG==============\nGPU 00000000:3B:00.0\n    \
             Product Name : Example\n    GPU Recovery Action : {recovery}\n    \
             Fabric\n        State : Completed\n        Status : Success\n        \
             Health\n            {health}\n    \
             FB Memory Usage\n        Total : 81000 MiB\n        Used : 0 MiB\n    \
             Processes : None\n"
        )
    };
    assert_output(&[
        (
            &log("None", "Route Unhealthy : True"),
            &["NVLINK DOWN GPU 0", "high", "a route in its NVLink fabric is unhealthy"],
        ),
        (
            &log("None", "Bandwidth : Degraded"),
            &["likely", "bandwidth of its NVLink fabric is degraded"],
        ),
        (&log("None", "Route Recovery in progress : True"), &["possible", "being recovered"]),
        (&log("None", "Access Timeout Recovery : True"), &["possible", "an access that timed out"]),
        (
            &log("None", "Incorrect Configuration : Insufficient Nvlinks"),
            &["high", "its fabric configuration is wrong: Insufficient Nvlinks"],
        ),
        (&log("None", "Incorrect Configuration : None"), &["0 findings"]),
        (
            &log("Node Reboot", "Bandwidth : Full"),
            &["DEVICE FAULT", "requires a reboot", "sudo reboot"],
        ),
        (&log("GPU Reset", "Bandwidth : Full"), &["requires a reset", "gpuws reset 0"]),
        (&log("Recover IMEX Domain", "Bandwidth : N/A"), &["IMEX domain", "nvidia-imex"]),
        (
            "index, memory.used [MiB], memory.total [MiB], remapped_rows.pending, fabric.state\n\
             0, 5 MiB, 81000 MiB, Yes, In Progress\n",
            &["a memory repair takes effect at the next reset", "error 802"],
        ),
    ]);
}

#[test]
fn failures_have_cause_and_remedy_or_say_it_is_missing() {
    let no_fuser = "!fuser";
    assert_output(&[
        (
            "root@9f3c21aa07de:/work# nvidia-smi\nFailed to initialize NVML: Unknown Error\n",
            &["daemon-reload", "nvidia-ctk system create-dev-char-symlinks", "CDI", no_fuser],
        ),
        ("pynvml.NVMLError_Unknown: Unknown Error\n", &["lost access to its devices", no_fuser]),
        (
            "docker: Error response from daemon: could not select device driver \"\" with \
             capabilities: [[gpu]].\n",
            &["NVIDIA Container Toolkit", "nvidia-ctk runtime configure", no_fuser],
        ),
        (
            "Failed to initialize NVML: GPU access blocked by the operating system\n",
            &["Under WSL 2", "The text does not say which", "wsl.exe --update", "!(--gpus)"],
        ),
        (
            "[ 77.1] usb 1-1: new device\n\
             [ 78.2] NVRM: nvCheckOkFailedNoLog: Check failed: Out of memory [NV_ERR_NO_MEMORY] \
             (0x00000051) returned from x @ mem.c:7\n",
            &["the driver could not allocate system memory", "free -h", "GB10", no_fuser],
        ),
        (
            "epoch 3 loss 0.2\nslurmstepd: error: Detected 2 oom_kill events in StepId=77.0. Some \
             of the step tasks have been OOM Killed.\n",
            &["system memory ran out", "--mem", "GPU memory did not run out", no_fuser],
        ),
        (
            "kernel: Memory cgroup out of memory: Killed process 812 (python) total-vm:9kB\n",
            &["system memory ran out", no_fuser],
        ),
        (
            "    Last State:     Terminated\n      Reason:       OOMKilled\n      Exit Code:    137\n",
            &["system memory ran out", "kubectl describe pod"],
        ),
        (
            "time=2025-07-01T10:00:00Z level=WARN source=sched.go:7 msg=\"gpu VRAM usage didn't \
             recover within timeout\" seconds=5.1\n",
            &["was not released in time", "sudo fuser"],
        ),
        (
            "RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable\n",
            &["Exclusive_Process", "compute_mode", "The text does not say which"],
        ),
        ("RuntimeError: No CUDA GPUs are available\n", &["CUDA_VISIBLE_DEVICES", no_fuser]),
        (
            "UserWarning: CUDA initialization: CUDA unknown error - this may be due to x. Setting \
             the available devices to be zero.\n",
            &["an unknown error", "CUDA_VISIBLE_DEVICES", "!CUDA finds no GPU"],
        ),
        (
            "nvidia-container-cli: initialization error: nvml error: driver/library version \
             mismatch\n",
            &["version", "!NVIDIA Container Toolkit"],
        ),
        ("CUDA error: invalid device ordinal\n", &["a GPU number that does not exist"]),
        (
            "CUDA driver version is insufficient for CUDA runtime version\n",
            &["the driver is older than the program's CUDA version"],
        ),
        (
            "CUDA error: no kernel image is available for execution on the device\n",
            &["not built for the architecture", "compute_cap"],
        ),
        (
            "CUDA error: an illegal memory access was encountered\n",
            &["not a lack of memory", "compute-sanitizer", "CUDA_LAUNCH_BLOCKING=1", no_fuser],
        ),
        ("CUDA error: uncorrectable ECC error encountered\n", &["-d ECC,ROW_REMAPPER"]),
        ("CUDA error 802: system not yet initialized\n", &["nvidia-fabricmanager"]),
        (
            "[ 12.5] NVRM: nvAssertOkFailedNoLog: Assertion failed: Reset required \
             [NV_ERR_RESET_REQUIRED] (0x00000062) returned from status @ x.c:7\n",
            &["requires a reset", "sudo dmesg"],
        ),
        (
            "Error 803: system has unsupported display driver / cuda driver combination\n",
            &[
                "(libcuda) is incompatible with the driver",
                "does not say which",
                "cuda-compat",
                "!upgraded",
            ],
        ),
        (
            "Error 804: forward compatibility was attempted on non supported HW\n",
            &["cuda-compat, which supports data-centre GPUs only", no_fuser],
        ),
        (
            "[ 12.5] amdgpu 0000:03:00.0: amdgpu: ring gfx_0.0.0 timeout, signaled seq=7, emitted \
             seq=9\n[ 12.6] amdgpu 0000:03:00.0: amdgpu: GPU reset begin!\n",
            &[
                "ring timeout: a queue stopped",
                "GPU reset: the driver resets the GPU: a consequence",
                "grep -w -e amdgpu",
                no_fuser,
            ],
        ),
        (
            "[ 12.5] i915 0000:00:02.0: [drm] GPU HANG: ecode 12:1:8, in x [7]\n",
            &["GPU hang: an engine stopped, at an unknown time, by x"],
        ),
        (
            "[drm:amdgpu_job_timedout [amdgpu]] *ERROR* ring gfx timeout, signaled seq=7\n",
            &["an AMD or Intel GPU reports that the GPU hung", "amdgpu", no_fuser],
        ),
        (
            "Warning  FailedScheduling  0/3 nodes are available: 3 Insufficient nvidia.com/gpu.\n",
            &["Kubernetes has no GPU for the pod", "kubectl describe node", no_fuser],
        ),
        (
            "Allocate failed due to requested number of devices unavailable for nvidia.com/gpu. \
             Requested: 1, Available: 0, which is unexpected\n",
            &["Kubernetes has no GPU for the pod", "unhealthy"],
        ),
        (
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess.\n",
            &["spawn", "not a GPU fault"],
        ),
        (
            "torch.distributed.DistBackendError: NCCL error: unhandled cuda error (run with \
             NCCL_DEBUG=INFO for details)\n",
            &["the text does not say why", "NCCL_DEBUG=WARN", no_fuser],
        ),
        ("CUDA error: unknown error\n", &["not for lack of memory", "an Xid names the reason"]),
        (
            "NVRM: GPU 0000:3b:00.0: RmInitAdapter failed! (0x26:0xffff:1290)\n",
            &["initialise a GPU"],
        ),
        ("bash: nvidia-smi: command not found\n", &["nvidia-smi was not found", no_fuser]),
        ("Field \"memory.usd\" is not a valid field to query.\n", &["--help-query-gpu", no_fuser]),
        (
            "nvidia-settings: error: the display cannot be opened\n",
            &[
                "reports an error without its cause",
                "also paste the output of",
                "nvidia-smi; sudo fuser",
            ],
        ),
        // A program that continues has not failed.
        (
            "W07 memory.cc:1] Failed to allocate CUDA memory on GPU 0, falling back to pinned \
             system memory\n",
            &["!FAILURE"],
        ),
        (
            "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
            &["no GPU could be queried there", "sudo modprobe nvidia", "!FAILURE"],
        ),
    ]);
}

#[test]
fn listings_of_other_tools_and_of_mails_are_read() {
    let gpustat = "\
box9                 Sun Mar  9 20:15:01 2025  550.54.15
[0] NVIDIA A30 | 41°C,  30 % |  9100 / 24576 MB | ann(5000M) bob(4M)
[1] NVIDIA A30 | 33°C,   0 % |     4 / 24576 MB |
";
    let wrapped = table(&device("900MiB / 24576MiB", "0%", "Disabled"), "");
    let wrapped: String = wrapped
        .lines()
        .map(|line| match line.rfind("  ").filter(|at| *at > 40 && line.contains("   ")) {
            Some(at) if !line.starts_with('+') => {
                format!("> {}\n> {}\n", line[..at].trim_end(), line[at..].trim_start())
            }
            _ => format!("> {line}\n"),
        })
        .collect();
    let escaped = table(&device("900MiB / 24576MiB", "0%", "Disabled"), "").replace('\n', "\\n");
    let profiles = format!(
        "{RULE}| GPU instance profiles:                                                      |\n\
         |=============================================================================|\n\
         |   0  MIG 1g.6gb          14     4/4        5.75       No     14     1     0   |\n{RULE}"
    );
    let memory = &["GHOST GPU 0", "900 of 24,576 MiB used"][..];
    let prefixed = |prefix: &str| {
        let table = table(&device("900MiB / 24576MiB", "0%", "Disabled"), "");
        table.lines().map(|line| format!("{prefix}{line}\n")).collect::<String>()
    };
    assert_output(&[
        (
            gpustat,
            &[
                "GHOST GPU 0",
                "9,100 of 24,576 MiB used; the 2 processes",
                "5,004 MiB",
                "1 findings",
            ],
        ),
        (&wrapped, memory),
        (&format!("{{\"log\": \"{escaped}\"}}\n"), memory),
        (
            &format!("{{\"message\":\"\\u001b[0m{escaped}\\u001b[m\",\"stream\":\"stdout\"}}\n"),
            memory,
        ),
        (&profiles, &["profiles or instances of MIG", "!FAILURE"]),
        (
            "{\n \"hostname\": \"box9\",\n \"query_time\": \"2025-03-09T20:15:01.000007\",\n \
             \"gpus\": [\n  {\"index\": 0, \"name\": \"NVIDIA A30\", \"memory.used\": 9100, \
             \"memory.total\": 24576, \"processes\": [{\"username\": \"ann\", \"command\": \
             \"python\", \"gpu_memory_usage\": 5000, \"pid\": 7}]}\n ]\n}\n",
            &["GHOST GPU 0", "9,100 of 24,576 MiB used; the process that NVML lists", "5,000 MiB"],
        ),
        // docker compose and kubectl put a name and a time before each line.
        (&prefixed("web-1  | 2025-03-04T10:00:00.000000007Z "), memory),
        (&prefixed("web-1  | "), memory),
        (&prefixed("[pod/web-0/main] 2025-03-04T10:00:00.000000007Z "), memory),
    ]);
}

#[test]
fn failure_quotes_the_line_that_reports_it() {
    assert_output(&[
        (
            "$ ./train\nloading\nRuntimeError: No CUDA GPUs are available\n",
            &["  line RuntimeError: No CUDA GPUs are available\n", "!line loading"],
        ),
        (
            "Failed to initialize NVML: Driver/library version mismatch\n",
            &["could be queried", "  line Failed to initialize NVML: Driver/library version"],
        ),
        // A terminal has wrapped the message.
        (
            "RuntimeError: No CUDA\nGPUs are available\n",
            &["  line RuntimeError: No CUDA GPUs are available\n"],
        ),
    ]);
}

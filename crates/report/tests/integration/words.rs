//! The wording of the command line.

use crate::fixture::*;
use gpu_core::*;
use gpu_fleet::{HostMessage, NoAnswer, Progress};
use gpu_reaper::reset::{Unknown, Way};
use gpu_reaper::{
    Action, Advice, Confidence, Diagnosis, FindingKind, Freed, Outcome, Report, Role,
};
use gpu_report::hosts::run::progress;
use gpu_report::wording::{self, claims, reset};
use gpu_report::{Exit, fault};

use gpu_placement::{Bar, Passed};
use gpu_steward::{Convention, Note, WaitReason};
use std::collections::BTreeSet;

#[test]
fn every_kind_of_finding_has_words_of_its_own() {
    let words: BTreeSet<&str> = FindingKind::ALL.into_iter().map(wording::kind).collect();
    assert_eq!(words.len(), FindingKind::ALL.len());
    let short: BTreeSet<&str> = FindingKind::ALL.into_iter().map(wording::short).collect();
    let expected =
        ["", "ghost", "gone", "grows", "idle holder", "orphan", "stuck", "waits", "zombie"];
    assert!(short.into_iter().eq(expected), "only kinds that name a process have one");
}

#[test]
fn answers_of_hosts_are_shown_with_their_hints() {
    let host = "n1".parse().unwrap();
    let message = HostMessage {
        error: "failed to load libnvidia-ml.so.1".to_owned(),
        hint: Some("install the driver".to_owned()),
    };
    let failed = NoAnswer::Failed(3, message);
    let lines = progress(&Progress::NoAnswer(&host, &failed), 2);
    assert_eq!(
        lines,
        [
            "n1: no answer: gpuws exited with 3: failed to load libnvidia-ml.so.1",
            "n1: hint: install the driver"
        ]
    );
    for (hosts, where_) in [(1, "the host"), (2, "one of 2 hosts")] {
        let line = format!("waiting for free GPUs on {where_} …");
        assert_eq!(progress(&Progress::Waiting, hosts), [line]);
    }
}

#[test]
fn hidden_processes_limit_the_diagnosis() {
    let mut snapshot = Snapshot { devices: vec![full_device(0)], ..snapshot() };
    let nothing = Diagnosis::default();
    for (hidden, is_root, line) in [
        (0, false, "No problems found."),
        (1, false, "No problems found in what you can read; 1 process is hidden (try sudo)."),
        (2, false, "No problems found in what you can read; 2 processes are hidden (try sudo)."),
        (2, true, "No problems found in what you can read; 2 processes are hidden."),
    ] {
        snapshot.unreadable = Unreadable::default();
        snapshot.unreadable.add(Absent::NotPermitted, hidden);
        snapshot.is_root = Ok(is_root);
        assert_eq!(wording::doctor::summary(&snapshot, &nothing).text(), line);
    }
}

#[test]
fn modes_and_roles_have_the_words_of_nvidia_smi() {
    assert_eq!(wording::addressing_mode(AddressingMode::None), "None");
    assert_eq!(wording::addressing_mode(AddressingMode::Ats), "ATS");
    assert_eq!(wording::fabric_state(FabricState::None), "N/A");
    assert_eq!(wording::fabric_state(FabricState::NotStarted), "Not Started");
    assert_eq!(wording::fabric_state(FabricState::InProgress), "In Progress");
    assert_eq!(wording::operation_mode(OperationMode::AllOn), "All On");
    assert_eq!(wording::operation_mode(OperationMode::LowDoublePrecision), "Low Double Precision");
    assert_eq!(wording::role(Role::MemoryUser), "uses memory");
    assert_eq!(wording::role(Role::Monitor), "monitor");
    assert_eq!(wording::role(Role::Display), "display");
    assert_eq!(wording::role(Role::Daemon), "daemon");
    assert_eq!(wording::confidence(Confidence::Possible), "possible");
    assert_eq!(wording::confidence(Confidence::Likely), "likely");
    assert_eq!(wording::confidence(Confidence::High), "high");
}

#[test]
fn advice_is_a_command_with_the_simulated_machine_in_it() {
    let stop = |unit: &str, user: Option<&str>| Advice::StopUnit {
        unit: unit.to_owned(),
        user: user.map(str::to_owned),
    };
    let container = |podman| Advice::StopContainer { podman, id: "0123456789abcdef".into() };
    for (advice, command) in [
        (Advice::ReapDevice(3), "gpuws --sim a reap --gpu 3"),
        (Advice::ReapProcess(Pid(7)), "gpuws --sim a reap --pid 7"),
        (Advice::LookAsRoot, "sudo gpuws --sim a doctor"),
        (Advice::PasteHolders, "sudo fuser -v /dev/nvidia* 2>&1"),
        (Advice::LookOnHost, "gpuws doctor"),
        (Advice::LookLonger, "gpuws --sim a doctor --samples 3"),
        (
            Advice::LimitVisibleDevices(vec![0, 2]),
            "export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,2",
        ),
        (Advice::LetMemoryGrow, "TF_FORCE_GPU_ALLOW_GROWTH=true"),
        (Advice::UseDevices(8), "torchrun --nproc-per-node 8 …"),
        (Advice::FeedDevices, "DataLoader(…, num_workers=8, pin_memory=True, prefetch_factor=4)"),
        (Advice::ResetDevice(3), "gpuws --sim a reset 3"),
        (Advice::AllowMoreTime, "gpuws --sim a --deadline 120 doctor"),
        (Advice::LoadDriver, "sudo modprobe nvidia"),
        (Advice::ReadKernelLog, wording::KERNEL_LOG),
        (Advice::ReadProgramError, wording::KERNEL_LOG),
        (Advice::WaitOrReboot, "sudo dmesg | tail -40"),
        (Advice::Reboot, "sudo reboot"),
        (Advice::EndPeerWork(3), "gpuws --sim a status -i 3"),
        (Advice::ReadRecoveryAction(3), "nvidia-smi -q -i 3"),
        (Advice::StopService(Pid(7)), "systemctl status 7"),
        (Advice::EndParent(Pid(7)), "ps -o pid,user,args -p 7"),
        (Advice::WatchIdle, "gpuws --sim a doctor --samples 11 --every 60"),
        (stop("vllm.service", None), "sudo systemctl stop -- vllm.service"),
        (stop("a.service", Some("eve")), "sudo systemctl --user -M 'eve@' stop -- a.service"),
        (Advice::AskOwner(3), "gpuws --sim a status -i 3"),
        (Advice::CancelJob("4711_3".into()), "scancel -- 4711_3"),
        (container(false), "sudo docker stop -- 0123456789ab"),
        (container(true), "sudo podman stop -- 0123456789ab"),
        (
            Advice::DeletePod("2f44".into()),
            "kubectl get pods -A -o custom-columns=NS:metadata.namespace,NAME:metadata.name,\
                UID:metadata.uid | grep 2f44",
        ),
        (
            Advice::DeleteNamedPod { namespace: "lab".into(), name: "a;b".into() },
            "kubectl delete pod -n lab -- 'a;b'",
        ),
        (Advice::AllowCompute(3), "sudo nvidia-smi -i 3 -c DEFAULT"),
        (Advice::CreateMigInstance(3), "sudo nvidia-smi mig -i 3 -lgip"),
        (Advice::ReplaceDevice(3), "nvidia-smi -q -i 3 -d ECC,ROW_REMAPPER"),
        (Advice::CheckCooling(3), "nvidia-smi -q -i 3 -d TEMPERATURE,PERFORMANCE"),
        (Advice::CheckPower(3), "nvidia-smi -q -i 3 -d POWER,PERFORMANCE"),
        (Advice::CheckSlot(3), "nvidia-smi -q -i 3 | grep -A 12 'GPU Link Info'"),
        (Advice::ReadDrmLog, "sudo dmesg | grep -w -e amdgpu -e i915 -e xe"),
        (
            Advice::CheckPciLink("0000:0b:00.0".parse().unwrap()),
            "sudo lspci -vv -s 00000000:0B:00.0 | grep -e LnkCap -e LnkSta",
        ),
        (Advice::ReadSensors, "sensors"),
        (Advice::CheckNvLinks(3), "nvidia-smi nvlink -s -i 3"),
        (Advice::CheckFabricManager, "systemctl status nvidia-fabricmanager"),
        (Advice::EnablePersistence, "sudo nvidia-smi -pm 1"),
    ] {
        let (text, what) = wording::advice(&advice, "--sim a ");
        assert_eq!(text, command);
        assert!(!what.is_empty());
    }
}

#[test]
fn devices_are_named_together() {
    let mut snapshot = snapshot();
    snapshot.devices = (0..4).map(full_device).collect();
    snapshot.devices[3].info.name = Ok("NVIDIA H100".into());
    let named = |indexes: &[usize], snapshot: &Snapshot| {
        let ids: Vec<DeviceId> =
            indexes.iter().map(|at| snapshot.devices[*at].id().clone()).collect();
        wording::devices(snapshot, &ids)
    };
    assert_eq!(named(&[0], &snapshot), "GPU 0 A100");
    assert_eq!(named(&[0, 1, 2], &snapshot), "GPUs 0–2 A100");
    assert_eq!(named(&[0, 3], &snapshot), "GPUs 0, 3", "they differ");
    assert_eq!(wording::choose_from(&[]), "no GPU responds");
    assert_eq!(wording::choose_from(&[3]), "the only GPU is 3");
    assert_eq!(wording::choose_from(&[0, 1, 2]), "choose from GPUs 0–2");
}

#[test]
fn processes_are_named_by_best_known_name() {
    let info = process(7, "python");
    assert_eq!(wording::user(Ok(&info)), "alice");
    let numbered = ProcessInfo { user: Err(Absent::NotFound), ..info.clone() };
    assert_eq!(wording::user(Ok(&numbered)), "1000");
    let unknown = ProcessInfo { uid: Err(Absent::NotFound), ..numbered };
    assert_eq!(
        (wording::user(Ok(&unknown)), wording::user(Err(Absent::NotFound))),
        ("?".into(), "?".into())
    );

    assert_eq!(wording::command(Ok(&info), Some("listed")), "/usr/bin/python --fast");
    let bare = ProcessInfo { command_line: Ok(vec![" ".to_owned()].into()), ..info };
    assert_eq!(wording::command(Ok(&bare), Some("listed")), "python");
    let nameless = ProcessInfo { name: String::new(), ..bare };
    assert_eq!(wording::command(Ok(&nameless), Some("listed")), "listed");
    assert_eq!(wording::command(Err(Absent::NotFound), None), "?");
    assert_eq!(wording::process(Pid(7), "python"), "7 python");
}

#[test]
fn times_and_counts_are_rounded_for_people() {
    let age = |seconds| wording::age(std::time::Duration::from_secs(seconds));
    let ages = [0, 59, 60, 3599, 3600, 86_399, 86_400, 200_000].map(age);
    assert_eq!(ages, ["0 s", "59 s", "1 min", "59 min", "1 h", "23 h", "1 d", "2 d"]);
    let now = Timestamp(1_795_223_083_000);
    assert_eq!(wording::started(Timestamp(now.0 - 3_600_000), now), "00:04 UTC");
    assert_eq!(wording::started(Timestamp(now.0 - 86_400_000), now), "2026-11-20");
    assert_eq!(wording::count(1, "GPU", "GPUs"), "1 GPU");
    assert_eq!(wording::count(0, "GPU", "GPUs"), "0 GPUs");
    for (word, quoted) in
        [("a-b/c.d_e:f,1", "a-b/c.d_e:f,1"), ("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'")]
    {
        assert_eq!(wording::shell_word(word), quoted);
    }
    for (path, word) in [("-f", "./-f"), ("--all x", "'./--all x'"), ("-", "-"), ("a/-b", "a/-b")] {
        assert_eq!(wording::path_word(path.as_ref()), word);
    }
}

#[test]
fn report_proves_no_effect_on_targets_ended_before_signals() {
    let mib = |count| Ok(Bytes::from_mib(count));
    let device = DeviceId::from_index(0);
    let action = |signals: &[Signal], outcome| Action {
        pid: Pid(7),
        name: "python".to_owned(),
        signals: signals.to_vec(),
        outcome,
    };
    let reported = |action| {
        let freed = Freed {
            device: device.clone(),
            before: mib(4),
            after: mib(4),
            freed: Some(Bytes(0)),
            by_others: None,
            doubt: None,
            expected: mib(72_704).ok(),
            seen_after: std::time::Duration::ZERO,
            came_back: false,
        };
        let report = Report { actions: vec![action], memory: vec![freed], ..Report::nothing() };
        let reported = wording::reap::report(&report);
        reported.iter().map(|part| format!("{}{}", part.head.text(), part.text)).collect::<Vec<_>>()
    };
    let gone = reported(action(&[], Outcome::AlreadyGone));
    assert_eq!(gone, ["GPU 0: 4 MiB in use; no signal was sent"]);
    let ended = reported(action(&[Signal::Term], Outcome::Ended { after_ms: 9 }));
    assert_eq!(ended, ["GPU 0: 4 → 4 MiB   was not freed"]);
}

#[test]
fn every_reason_against_a_device_is_shown() {
    let user = |uid: u32| format!("user {uid}");
    let lease = LeaseId::parse("a").unwrap();
    let mib = Bytes::from_mib;
    let fault = |kind: DeviceFault| Error::new(kind, "ask it").fault();
    for (passed, words) in [
        (Passed::Barred(Bar::Leased { lease: lease.clone(), owner: 7 }), "leased by user 7"),
        (
            Passed::Barred(Bar::Reserved { waiter: lease, owner: 7 }),
            "reserved for user 7, who is ahead in the queue",
        ),
        (
            Passed::Barred(Bar::Outsider { pid: Pid(9), is_host_pid: false, name: "x".into() }),
            "in use without a lease by 9 x",
        ),
        (
            Passed::Barred(Bar::Outsider { pid: Pid(9), is_host_pid: true, name: String::new() }),
            "in use without a lease by host PID 9",
        ),
        (Passed::Barred(Bar::Unexplained(mib(5))), "5 MiB in use that no process accounts for"),
        (
            Passed::Barred(Bar::Faulty(Error::new(ErrorKind::Io, "ask it").fault())),
            "faulty: failed to ask it",
        ),
        (Passed::Barred(Bar::Faulty(fault(DeviceFault::Lost))), "lost (fallen off the bus)"),
        (Passed::Barred(Bar::Faulty(fault(DeviceFault::ResetRequired))), "reset required"),
        (
            Passed::Barred(Bar::Unfit("2 uncorrected memory errors".into())),
            "2 uncorrected memory errors",
        ),
        (Passed::Barred(Bar::UsersUnknown(Absent::TooOld)), "users unknown: driver too old"),
        (Passed::Barred(Bar::NameUnknown), "no unique UUID"),
        (Passed::Barred(Bar::Partitioned), "MIG is enabled; claim a MIG device with --mig"),
        (
            Passed::Barred(Bar::PartitionAlone),
            "CUDA exposes one MIG device and no other GPU to a program",
        ),
        (Passed::NotAmong, "not in the requested set"),
        (Passed::Excluded, "excluded"),
        (
            Passed::LacksMemory { has: mib(5), needs: mib(6) },
            "only 5 MiB in total; 6 MiB requested",
        ),
        (Passed::LacksRoom { has: mib(5), needs: mib(6) }, "only 5 MiB free; 6 MiB requested"),
        (Passed::MemoryUnknown(Absent::TooOld), "memory unknown: driver too old"),
        (
            Passed::LowCapability { has: (7, 5), needs: (8, 0) },
            "compute capability 7.5; 8.0 requested",
        ),
        (Passed::CapabilityUnknown(Absent::TooOld), "compute capability unknown: driver too old"),
        (Passed::DrivesDisplay, "in use by a display"),
        (Passed::OtherSetBetter, "free"),
    ] {
        assert_eq!(claims::passed(&passed, &user, None), words);
    }
    let limit = Some("CUDA_VISIBLE_DEVICES");
    assert_eq!(claims::passed(&Passed::NotAmong, &user, limit), "excluded by CUDA_VISIBLE_DEVICES");
}

#[test]
fn reasons_are_shown_once_with_their_devices() {
    let user = |uid: u32| format!("user {uid}");
    let ids: Vec<DeviceId> = (0..4).map(DeviceId::from_index).collect();
    let (excluded, display) = (Passed::Excluded, Passed::DrivesDisplay);
    let passed = [&excluded, &display, &excluded, &excluded];
    let reasons = claims::reasons(ids.iter().zip(passed), &user, None);
    assert_eq!(reasons, ["GPUs 0, 2, 3: excluded", "GPU 1: in use by a display"]);
    assert_eq!(claims::gpus(&[0, 3]), "GPUs 0 and 3");
    let part = DeviceId { uuid: Ok(DeviceUuid("MIG-7".into())), ..DeviceId::from_index(2) };
    assert_eq!(claims::named(&[&part, &ids[1]]), "GPU 1, MIG-7 of GPU 2");
}

#[test]
fn every_fault_has_a_meaning_and_a_remedy() {
    use ErrorKind::{Device, Machine};
    let kinds = [
        Machine(MachineFault::NoLibrary),
        Machine(MachineFault::DriverNotLoaded),
        Machine(MachineFault::VersionMismatch),
        Machine(MachineFault::Blocked),
        Machine(MachineFault::NotPermitted),
        Machine(MachineFault::NoDevices),
        Device(DeviceFault::Lost),
        Device(DeviceFault::ResetRequired),
        Device(DeviceFault::InsufficientPower),
    ];
    let meanings: BTreeSet<&str> = kinds.iter().filter_map(|kind| fault::meaning(*kind)).collect();
    let remedies: BTreeSet<&str> = kinds.iter().filter_map(|kind| fault::remedy(*kind)).collect();
    assert_eq!((meanings.len(), remedies.len()), (kinds.len(), kinds.len()));
    let interrupt = Device(DeviceFault::Interrupt);
    assert!(fault::meaning(interrupt).is_some() && fault::remedy(interrupt).is_none());
    assert!(fault::meaning(ErrorKind::Io).is_none() && fault::remedy(ErrorKind::Io).is_none());
    let sudo = Some("run the same command with sudo");
    assert_eq!(fault::remedy(ProcessFault::NotPermitted.into()), sudo);
    assert_eq!(fault::remedy(Absent::NotPermitted.into()), sudo);

    let hang = Error::new(ErrorKind::TimedOut, "get an answer: x hangs").fault();
    assert_eq!(fault::brief(&hang), "no answer in time");
    assert_eq!(fault::account(&hang), "failed to get an answer: x hangs");
    let lost = Error::new(DeviceFault::Lost, "sample it").fault();
    assert_eq!(fault::account(&lost), "lost: it has fallen off the bus");
    let io = Error::new(ErrorKind::Io, "read a file").fault();
    assert_eq!(fault::brief(&io), "failed to read a file");
    assert_eq!(Exit::of(MachineFault::DriverNotLoaded.into(), false).code(), 3);
}

#[test]
fn notes_on_schedulers_are_shown() {
    let slurm = Convention::Slurm;
    for (note, words) in [
        (
            Note::ListEnds { variable: "SLURM_JOB_GPUS", at: "x".into() },
            "SLURM_JOB_GPUS is cut at 'x': no such device here",
        ),
        (Note::NothingNamed(slurm), "Slurm sets no device list; pass the allocated count with -n"),
        (
            Note::NumbersUnclear(slurm),
            "the index order of CUDA_VISIBLE_DEVICES is unknown (CUDA_DEVICE_ORDER); using \
             Slurm's list",
        ),
        (Note::OneOfMany(slurm, 3), "Slurm local rank 3 claims its own GPUs"),
    ] {
        assert_eq!(claims::note(&note), words);
    }
    let fault = Error::new(ErrorKind::TimedOut, "hold safe-gpu's locks").fault();
    let safe_gpu = claims::wait_reason_text(&WaitReason::SafeGpu(fault.clone()));
    assert_eq!(safe_gpu, "waiting to hold safe-gpu's locks");
    let driver = claims::wait_reason_text(&WaitReason::Driver(fault));
    assert_eq!(driver, "driver not responding: failed to hold safe-gpu's locks");
    let share = Claim { share: Share::Memory(Bytes::from_mib(6144)), ..Claim::whole(1) };
    assert_eq!(claims::asked(&share), "6,144 MiB of 1 GPU");
    assert_eq!(claims::asked(&Claim::whole(2)), "2 GPUs");
}

#[test]
fn obstacles_to_a_reset_are_shown_with_a_command() {
    for (unknown, why, remedy) in [
        (Unknown::DeviceFile, "the GPU's device file is unknown", "sudo gpuws doctor"),
        (Unknown::NoFile, "the GPU's device file does not exist", "sudo gpuws doctor"),
        (
            Unknown::Links,
            "cannot determine which GPUs share NVLink and would be reset together",
            "nvidia-smi topo -m",
        ),
        (
            Unknown::Holders,
            "cannot determine which processes have the device files open",
            "sudo gpuws doctor",
        ),
        (Unknown::Unread(1), "1 process could not be inspected", "run the same command with sudo"),
        (
            Unknown::Unread(2),
            "2 processes could not be inspected",
            "run the same command with sudo",
        ),
        (
            Unknown::OtherNamespaces,
            "processes outside this container are not visible",
            "run the same command on the host",
        ),
    ] {
        assert_eq!((reset::why(unknown).as_str(), reset::remedy(unknown, false)), (why, remedy));
        assert!(!reset::remedy(unknown, true).contains("sudo"), "root needs no hint to be root");
    }
    for (way, command) in [
        (Way::Diagnose(2), "gpuws --sim a doctor --gpu 2"),
        (Way::ReadKernelLog, "sudo dmesg | tail -40"),
        (Way::Reap(2, Pid(7)), "gpuws --sim a reap --gpu 2 --pid 7"),
        (Way::AskOwner(2), "gpuws --sim a status -i 2"),
        (Way::QuitMps(Some(9)), "echo quit | sudo -u '#9' nvidia-cuda-mps-control"),
        (Way::QuitMps(None), "echo quit | sudo nvidia-cuda-mps-control"),
        (Way::EndGraphicalSession, "sudo systemctl isolate multi-user.target"),
        (Way::StopService("x".into()), "sudo systemctl stop x"),
        (Way::EndMonitor(Pid(7)), "kill 7"),
        (Way::FindService(Pid(7)), "systemctl status 7"),
    ] {
        assert_eq!(reset::way(&way, "--sim a ").0, command);
    }
}

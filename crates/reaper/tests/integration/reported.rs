//! Which parts of a diagnosis are reported, and under which names.

use crate::fixture::*;
use gpu_core::*;
use gpu_reaper::*;

#[test]
fn lists_unread_processes_without_root_advice_for_root() {
    let unread = |pid, open_files_read| UnreadProcess {
        pid: Pid(pid),
        name: Ok("sshd".into()),
        user: Ok("root".into()),
        reason: Absent::NotPermitted,
        open_files_read,
    };
    let of = |unread: Vec<UnreadProcess>, is_root| {
        let mut now = snapshot_of(vec![device(0, 9000, 16_280)], vec![], vec![]);
        now.unreadable.add(Absent::NotPermitted, unread.len() as u32);
        (now.unread, now.is_root) = (unread, Ok(is_root));
        let finding = diagnose(&[now]).findings.remove(0);
        (finding.kind, finding.evidence.last().unwrap().text.clone(), finding.advice)
    };
    let one = "1 process could not be inspected: 9 sshd (root)".to_owned();
    assert_eq!(
        of(vec![unread(9, false)], false),
        (FindingKind::NotPermitted, one.clone(), vec![Advice::LookAsRoot])
    );
    assert_eq!(of(vec![unread(9, false)], true), (FindingKind::NotPermitted, one, vec![]));
    let many = (1..6).map(|pid| unread(pid, false)).collect();
    let text = "5 processes could not be inspected: 1 sshd (root), 2 sshd (root), \
                3 sshd (root) and others";
    assert_eq!(of(many, false).1, text);
    let (kind, _, advice) = of(vec![unread(9, true)], true);
    assert_eq!(kind, FindingKind::DriverLeak, "its open files were read");
    assert_eq!(advice, [Advice::ResetDevice(0)]);
}

#[test]
fn kinds_have_their_serialised_names() {
    for kind in FindingKind::ALL {
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.name());
        assert_eq!(kind.name().parse(), Ok(Ignored { kind, device: None }));
    }
    assert!(FindingKind::ALL.is_sorted());
    let on = |text: &str| text.parse::<Ignored>();
    let kind = FindingKind::NvLinkDown;
    assert_eq!(on("nvlink-down:3"), Ok(Ignored { kind, device: Some(3) }));
    assert_eq!(on("ghost:x"), Err("'x' is not a GPU index".to_owned()));
    assert!(on("gohst").unwrap_err().starts_with("'gohst' is not a kind of finding; expected "));
    for (text, level) in [
        ("possible", Ok(Confidence::Possible)),
        ("likely", Ok(Confidence::Likely)),
        ("high", Ok(Confidence::High)),
        ("sure", Err("expected possible, likely or high".to_owned())),
    ] {
        assert_eq!(text.parse(), level);
    }
}

#[test]
fn known_and_doubtful_findings_are_left_out() {
    let kept = |least, ignored: &[&str]| {
        let ignored: Vec<Ignored> = ignored.iter().map(|text| text.parse().unwrap()).collect();
        let info = process(100, "python");
        let devices = [0, 1].map(|index| listing(device(index, 8202, 16_280), 100, 8192));
        let mut diagnosis =
            diagnose(&[snapshot_of(devices.into(), vec![context(&info, &[0, 1])], vec![info])]);
        diagnosis.retain(least, &ignored);
        assert_eq!(diagnosis.findings.len() + diagnosis.left_out, 1);
        diagnosis.findings.len()
    };
    assert_eq!(kept(Confidence::Possible, &[]), 1, "a hoarder of GPUs 0 and 1");
    assert_eq!(kept(Confidence::Likely, &[]), 0);
    assert_eq!(kept(Confidence::Possible, &["ghost"]), 1);
    assert_eq!(kept(Confidence::Possible, &["hoarder"]), 0);
    assert_eq!(kept(Confidence::Possible, &["hoarder:0"]), 1, "it is on GPU 1 too");
    assert_eq!(kept(Confidence::Possible, &["hoarder:0", "hoarder:1"]), 0);
}

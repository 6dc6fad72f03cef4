//! The policy file: what it accepts, and the errors for what it rejects.

use gpu_core::{
    Absent, DeviceId, DeviceInfo, DeviceState, Executable, Fault, FileId, Groups, Pid, ProcessInfo,
};
use gpu_reaper::{Confidence, FindingKind, Protect};
use gpu_watch::{Allowed, Policy, PolicyError, Users};
use std::time::Duration;

const RULE: &str = "[reap]\ndry_run = true\nmost_per_hour = 3\n[[reap.rule]]\nkinds = \
    [\"ghost\"]\nall_users = true\nmin_confidence = \"high\"\nafter = \"30m\"\nwarn = \"5m\"\n";

/// Parses a policy on a machine with a few accounts and a directory server that cannot look up
/// mallory.
fn parse(text: &str) -> Result<Policy, PolicyError> {
    Policy::parse(text, &|name| match name {
        "root" => Ok(0),
        "alice" => Ok(1001),
        "ray" => Ok(990),
        "mallory" => Err(Absent::Failed),
        _ => Err(Absent::NotFound),
    })
}

fn why(text: &str) -> String {
    match parse(text) {
        Ok(policy) => panic!("{text} is valid: {policy:?}"),
        Err(error) => error.to_string(),
    }
}

/// The rule with one line replaced.
fn rule_with(from: &str, to: &str) -> String {
    assert!(RULE.contains(from), "{from}");
    RULE.replace(from, to)
}

#[test]
fn former_key_tell_is_read_as_notify() {
    let section = "owner = true\nupdate_every = \"2h\"\n";
    let now = parse(&format!("[notify]\n{section}")).unwrap();
    let former = parse(&format!("[tell]\n{section}")).unwrap();
    assert_eq!(former.notify, now.notify);
    assert!(former.has_former_key && !now.has_former_key);
    let both = parse(&format!("[tell]\n{section}[notify]\n{section}")).unwrap_err();
    assert!(both.to_string().contains("keep only [notify]"), "{both}");
}

#[test]
fn parses_complete_policy() {
    let policy = parse(
        r#"
        [findings]
        after = "2m"
        ignore = ["nvlink-down:3", "throttled"]
        [kind.hoarder]
        min_confidence = "high"
        min_memory = "8GiB"
        clear_after = "1h"
        [[allow]]
        user = "ray"
        kinds = ["orphan"]
        [notify]
        on_finding = ["/usr/local/sbin/alert", "--now"]
        owner = true
        [reap]
        dry_run = false
        most_per_hour = 4
        grace = "1m"
        protect = ["user:root", "jupyter"]
        [[reap.rule]]
        kinds = ["hoarder", "orphan"]
        users = ["alice", "1007"]
        gpus = ["0", "GPU-1"]
        min_confidence = "likely"
        after = "9h"
        warn = "1h"
        jobs = true
        "#,
    )
    .unwrap();
    let usual = policy.threshold(FindingKind::Ghost);
    assert_eq!((usual.after, usual.min_confidence), (Duration::from_secs(120), Confidence::Likely));
    let hoarder = policy.threshold(FindingKind::Hoarder);
    assert_eq!(hoarder.min_confidence, Confidence::High);
    assert_eq!(hoarder.clear_after, Duration::from_secs(3_600));
    assert_eq!(hoarder.after, usual.after, "a kind inherits values that it omits");
    assert_eq!(policy.ignored.len(), 2);
    assert_eq!(policy.allowed[0].kinds, [FindingKind::Orphan]);
    assert_eq!(policy.allowed[0].user, Some(990));
    assert!(policy.notify.owner && policy.notify.time_limit == Duration::from_secs(30));
    let reap = policy.reap.unwrap();
    assert_eq!(reap.protect, [Protect::User("0".into()), Protect::Name("jupyter".into())]);
    let rule = &reap.rules[0];
    assert_eq!(rule.users, Users::Named(vec![1001, 1007]));
    assert!(rule.jobs && rule.gpus.len() == 2 && !reap.dry_run);
}

#[test]
fn empty_policy_ends_no_process() {
    let policy = parse("").unwrap();
    assert!(policy.reap.is_none() && policy.notify.on_finding.is_none() && !policy.notify.owner);
    assert_eq!(policy.usual.min_confidence, Confidence::Likely);
}

#[test]
fn unknown_keys_and_words_get_suggestion_and_line() {
    for (text, expected) in [
        ("[finding]\n", "line 1: unknown key 'finding'; did you mean 'findings'?"),
        ("[findings]\nafer = \"1m\"", "line 2: unknown key 'afer'; did you mean 'after'?"),
        ("findings = 3", "line 1: invalid type: integer '3', expected a table"),
        ("[kind]\nghost = 3", "line 2: invalid type: integer '3', expected a table"),
        (
            "[reap]\nmost_per_hour = -1",
            "line 2: invalid value: integer '-1', expected a number of processes, 0 or more",
        ),
        (
            "[reap]\nmost_per_hour = \"4\"",
            "line 2: invalid type: string \"4\", expected a number of processes, 0 or more",
        ),
        ("[kind.horder]\n", "line 1: 'horder' is not a kind of finding; did you mean 'hoarder'?"),
        (
            "[findings]\nmin_confidence = \"sure\"",
            "line 2: 'sure' is not a confidence; expected one of possible, likely, high",
        ),
        (
            "[findings]\nafter = 60",
            "line 2: invalid type: integer '60', expected a duration in quotes, such as \"10m\"",
        ),
        (
            "[findings]\nafter = \"soon\"",
            "line 2: 'soon' is not a duration of at most a year; expected e.g. 90s, 10m or 2h",
        ),
        (
            "[findings]\nignore = [\"gost:1\"]",
            "line 2: 'gost' is not a kind of finding; did you mean 'ghost'?",
        ),
        ("[reap]\n", "line 1: missing key 'dry_run'"),
    ] {
        assert_eq!(why(text), expected, "{text}");
    }
}

#[test]
fn rule_must_be_explicit_and_possible() {
    assert!(parse(RULE).is_ok());
    for (from, to, expected) in [
        ("dry_run = true\n", "", "missing key 'dry_run'"),
        ("most_per_hour = 3\n", "", "missing key 'most_per_hour'"),
        ("warn = \"5m\"\n", "", "missing key 'warn'"),
        ("all_users = true\n", "", "specify either 'users'"),
        ("all_users = true\n", "users = []\n", "specify either 'users'"),
        ("all_users = true\n", "all_users = true\nusers = [\"a\"]\n", "specify either 'users'"),
        ("[\"ghost\"]", "[]", "'kinds' is empty"),
        ("warn", "gpus = []\nwarn", "'gpus' is empty; omit it for all"),
        ("all_users = true\n", "users = [\"alcie\"]\n", "rule 1: there is no account 'alcie'"),
        ("all_users = true\n", "users = [\"mallory\"]\n", "'mallory' could not be looked up"),
        (
            "[[reap.rule]]",
            "protect = [\"user:alcie\"]\n[[reap.rule]]",
            "reap.protect: there is no account 'alcie' here; specify a name or a UID",
        ),
        ("[\"ghost\"]", "[\"throttled\"]", "a signal cannot remedy 'throttled'"),
        ("[\"ghost\"]", "[\"stuck-holder\"]", "a signal cannot remedy 'stuck-holder'"),
        ("\"high\"", "\"likely\"", "'ghost' requires min_confidence = \"high\""),
        ("\"30m\"", "\"30s\"", "'after' is less than 1m"),
        ("\"5m\"", "\"31m\"", "'warn' is longer than 'after'"),
        ("[[reap.rule]]", "grace = \"5m\"\n[[reap.rule]]", "'grace' is longer than 4m"),
        ("[[reap.rule]]", "protect = [\"17\"]\n[[reap.rule]]", "'17' is a PID"),
    ] {
        let error = why(&rule_with(from, to));
        assert!(error.contains(expected), "{to}: {error}");
    }
    let possible = rule_with("\"high\"", "\"possible\"").replace("ghost", "hoarder");
    assert!(why(&possible).contains("'possible' is too low"));
    assert_eq!(
        why("[reap]\ndry_run = true\nmost_per_hour = 1\nrule = []"),
        "reap: there is no [[reap.rule]]"
    );
}

#[test]
fn reports_names_missing_on_the_machine() {
    let known = "[findings]\nignore = [\"ghost:0\", \"ghost:9\", \"hoarder\"]\n\
                 [[allow]]\nprogram = \"/bin/sh\"\n[[allow]]\nprogram = \"/nosuch\"\n";
    let rules = rule_with("warn", "gpus = [\"0\", \"77\"]\nwarn");
    let mut policy = parse(&format!("{known}{rules}")).unwrap();
    policy.locate(|path| (path == "/bin/sh").then_some(FileId::Device { major: 8, minor: 1 }));
    let fault = Fault { kind: Absent::NoAnswer.into(), text: String::new() };
    let info = DeviceInfo::unknown(DeviceId::from_index(0));
    let devices = [DeviceState::unanswered(info, Groups::NONE, &fault)];
    let unmatched = [
        "a rule names GPU 77, which this machine does not have now",
        "'ghost:9' is ignored, but this machine has no GPU 9 now",
        "'/nosuch' is allowed, but there is no such program",
    ];
    assert_eq!(policy.unmatched(&devices), unmatched);
}

#[test]
fn process_name_is_not_an_allowance() {
    let error = why("[[allow]]\nprogram = \"vllm\"");
    assert!(error.contains("a process chooses its own name"), "{error}");
    assert!(why("[[allow]]\nkinds = [\"ghost\"]").contains("a 'user'"));
    assert!(why("[[allow]]\nservice = \"vllm\"").contains("does not end in .service"));
    assert!(why("[[allow]]\nservice = \"docker.service\"").contains("only starts other processes"));
    assert!(why("[[allow]]\nuser = \"alcie\"").starts_with("allow: there is no account 'alcie'"));
    assert!(why("[[allow]]\nuser = \"ray\"\nkinds = []").contains("'kinds' is empty"));
    assert!(why("[[allow]]\nname = \"vllm\"").contains("unknown key 'name'"));
}

/// A process of user 1002 in this cgroup, with this executable.
fn process(cgroup: &str, path: &str, owner: u32) -> ProcessInfo {
    let program = Executable {
        path: path.into(),
        file: FileId::Inode { dev: 1, ino: 2 },
        owner,
        writable_by_others: false,
        seen_by_caller: Ok(true),
    };
    ProcessInfo {
        uid: Ok(1002),
        user: Ok("mallory".into()),
        cgroup: Ok(cgroup.into()),
        executable: Ok(Box::new(program)),
        ..ProcessInfo::from_name(Pid(7), "vllm")
    }
}

#[test]
fn every_condition_of_an_allowance_must_hold() {
    let session = "/user.slice/user-1002.slice/session-1.scope";
    let service = "/system.slice/vllm.service";
    let own = "/user.slice/user-1002.slice/user@1002.service/app.slice/vllm.service";
    let by_service = Allowed { service: Some("vllm.service".into()), ..Allowed::default() };
    let file = Some(FileId::Inode { dev: 1, ino: 2 });
    let by_program = Allowed { program: Some("/usr/bin/vllm".into()), file, ..Allowed::default() };
    let both = Allowed { user: Some(990), ..by_program.clone() };
    let kind = FindingKind::Hoarder;
    for (allowed, cgroup, path, owner, expected) in [
        (&by_service, service, "/usr/bin/x", 0, true),
        (&by_service, own, "/usr/bin/x", 0, false),
        (&by_service, "/lxc.payload.c1/system.slice/vllm.service", "/usr/bin/x", 0, false),
        (&by_service, session, "/usr/bin/vllm", 0, false),
        (&by_program, session, "/usr/bin/vllm", 0, true),
        (&by_program, session, "/usr/bin/vllm", 1002, false),
        // The program by another path, for example a link.
        (&by_program, session, "/opt/vllm/vllm", 0, true),
        (&both, session, "/usr/bin/vllm", 0, false),
    ] {
        let process = process(cgroup, path, owner);
        assert_eq!(allowed.covers(kind, Some(&process)), Some(expected), "{allowed:?} {cgroup}");
    }
    // Another file at this path: another version, or one in the user's own mount namespace.
    let other = Allowed { file: Some(FileId::Inode { dev: 1, ino: 3 }), ..by_program.clone() };
    let shown = process(session, "/usr/bin/vllm", 0);
    assert_eq!(other.covers(kind, Some(&shown)), None);
    let elsewhere = process(session, "/usr/bin/python3", 0);
    assert_eq!(other.covers(kind, Some(&elsewhere)), Some(false));
    let mut hidden = process(session, "/usr/bin/vllm", 0);
    hidden.executable = Err(Absent::NotPermitted);
    assert_eq!(by_program.covers(kind, Some(&hidden)), None);
    assert_eq!(both.covers(kind, Some(&hidden)), Some(false), "the user is certainly different");
    // The name has no effect: it may be unknown, or belong to a deleted user.
    let mut renamed = process(session, "/usr/bin/vllm", 0);
    renamed.user = Ok("ray".into());
    assert_eq!(both.covers(kind, Some(&renamed)), Some(false));
    (renamed.uid, renamed.user) = (Ok(990), Err(Absent::Failed));
    assert_eq!(both.covers(kind, Some(&renamed)), Some(true));
    renamed.uid = Err(Absent::NotPermitted);
    assert_eq!(both.covers(kind, Some(&renamed)), None);
    assert_eq!(by_program.covers(kind, None), None);
    let other = Allowed { kinds: vec![FindingKind::Orphan], ..by_program };
    assert_eq!(other.covers(kind, Some(&hidden)), Some(false));
}

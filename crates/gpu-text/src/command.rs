//! The command line above an output, from a paste with its shell prompt.
//!
//! It shows where an output starts, and the fields of CSV without a header line.

use crate::document::Kind;

/// A command whose output this crate reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Command {
    /// The kind of its output, if it is one of the known kinds.
    pub(crate) kind: Option<Kind>,
    /// The fields of a query.
    pub(crate) fields: Option<Vec<String>>,
}

/// The most fields of a query.
const MAX_FIELDS: usize = 1024;

/// Parses a command line, with or without a prompt before it.
pub(crate) fn read(line: &str) -> Option<Command> {
    let line = line.trim();
    if line.len() > 8192 || line.starts_with('|') {
        return None;
    }
    let (prompted, typed) = after_prompt(line);
    let mut words = typed.split_whitespace().peekable();
    while words.next_if(|word| is_wrapper(word)).is_some() {}
    let program = words.next()?;
    let program = program.rsplit(['/', '\\']).next().unwrap_or(program);
    let arguments: Vec<&str> =
        words.take_while(|word| !matches!(*word, "|" | ">" | "&&" | ";")).collect();
    // Without a prompt, a sentence can start with the name of a tool.
    let is_option = |word: &&&str| word.starts_with(['-', '/']) && word.len() > 1;
    let is_typed = prompted || arguments.iter().any(|word| is_option(&word));
    match program {
        "nvidia-smi" | "nvidia-smi.exe" => {
            let first = arguments.first().copied();
            let known = matches!(first, None | Some("topo" | "pmon" | "dmon" | "mig" | "nvlink"));
            (is_typed || known).then(|| nvidia_smi(&arguments))
        }
        "fuser" => is_typed.then_some(Command { kind: Some(Kind::Fuser), fields: None }),
        "dmesg" | "journalctl" => {
            is_typed.then_some(Command { kind: Some(Kind::KernelLog), fields: None })
        }
        "gpustat" => is_typed.then_some(Command { kind: Some(Kind::Gpustat), fields: None }),
        "rocm-smi" | "amd-smi" | "xpu-smi" | "intel_gpu_top" | "radeontop" | "amdgpu_top" => {
            is_typed.then_some(Command { kind: Some(Kind::Other), fields: None })
        }
        "lsof" => is_typed.then_some(Command { kind: Some(Kind::Lsof), fields: None }),
        _ => None,
    }
}

/// Returns whether a line separates outputs: a command, a prompt, a Markdown fence.
pub(crate) fn is_between(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("```") || after_prompt(line).0 || read(line).is_some()
}

/// Splits the prompt off: `user@host:~$ `, `[root@host ~]# `, `(env) C:\>`, `$ `, `+ `.
fn after_prompt(line: &str) -> (bool, &str) {
    const SIGNS: [char; 6] = ['$', '#', '%', '>', '\u{276f}', '\u{279c}'];
    const MAX_PROMPT: usize = 120;
    if let Some(rest) = line.strip_prefix("+ ") {
        return (true, rest);
    }
    for (at, sign) in line.char_indices().take(MAX_PROMPT) {
        if SIGNS.contains(&sign) {
            let (before, after) = (&line[..at], &line[at + sign.len_utf8()..]);
            if is_prompt_of(before, sign, after) {
                return (true, after.trim_start());
            }
        }
    }
    (false, line)
}

/// Returns whether `before` is a prompt's location, given its `sign` and the rest.
fn is_prompt_of(before: &str, sign: char, after: &str) -> bool {
    if before.contains(',') || before.contains("  ") || before.contains('<') {
        return false;
    }
    if sign == '>' {
        let drive = before.strip_prefix("PS ").unwrap_or(before).get(1..3);
        return drive == Some(":\\");
    }
    // Alone, the other signs start a comment or a heading as often as a command.
    let is_location = (before.is_empty() && !matches!(sign, '#' | '%'))
        || before.contains(['@', '~'])
        || before.contains(":/")
        || before.starts_with(['(', '[', '/', '\u{2514}', '\u{2570}'])
        || before.starts_with("bash-")
        || before.starts_with("sh-");
    is_location && (after.is_empty() || after.starts_with(' '))
}

/// Returns whether a word can precede a command without changing its output.
fn is_wrapper(word: &str) -> bool {
    matches!(word, "sudo" | "watch" | "time" | "exec" | "-d" | "-n" | "-n1" | "-n0.5" | "-E")
        || word.contains('=') && !word.starts_with('-')
        || word.parse::<f32>().is_ok()
}

fn nvidia_smi(arguments: &[&str]) -> Command {
    let has = |names: &[&str]| arguments.iter().any(|word| names.contains(word));
    let value = |name: &str| {
        let mut arguments = arguments.iter();
        arguments.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
    };
    let query = |fields: &str| {
        let names = fields.trim_matches(['"', '\'']).split(',').take(MAX_FIELDS);
        Some(names.map(|name| name.trim().to_owned()).collect())
    };
    let of_kind = |kind| Command { kind: Some(kind), fields: None };
    let of_processes = ["--query-compute-apps", "--query-apps", "--query-accounted-apps"]
        .into_iter()
        .find_map(value);
    if let Some(fields) = value("--query-gpu") {
        return Command { kind: Some(Kind::QueryGpu), fields: query(fields) };
    }
    if let Some(fields) = of_processes {
        return Command { kind: Some(Kind::QueryApps), fields: query(fields) };
    }
    match arguments.first() {
        Some(&"topo") if has(&["-p2p", "--p2p_status", "-p"]) => of_kind(Kind::P2p),
        Some(&"topo") => of_kind(Kind::Topo),
        Some(&"mig") => of_kind(Kind::Mig),
        Some(&"pmon") => of_kind(Kind::Pmon),
        Some(&"dmon") => of_kind(Kind::Dmon),
        _ if has(&["-L", "--list-gpus"]) => of_kind(Kind::List),
        _ if has(&["-x", "--xml-format"]) => of_kind(Kind::Xml),
        _ if has(&["-q", "--query"]) => of_kind(Kind::Q),
        None => of_kind(Kind::Table),
        Some(_) => Command { kind: None, fields: None },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn shell_prompts_are_recognised() {
        for (line, kind) in [
            ("$ nvidia-smi", Some(Kind::Table)),
            ("ann@box:~/work$ sudo fuser -v /dev/nvidia*", Some(Kind::Fuser)),
            ("[root@box ~]# lsof /dev/nvidia0", Some(Kind::Lsof)),
            ("(base) root@1234abcd:/# nvidia-smi -L", Some(Kind::List)),
            ("/ # nvidia-smi", Some(Kind::Table)),
            ("bash-4.2$ nvidia-smi", Some(Kind::Table)),
            ("C:\\Windows\\System32>nvidia-smi.exe -q -x", Some(Kind::Xml)),
            ("PS C:\\Users\\ann> nvidia-smi -q", Some(Kind::Q)),
            ("box:~ % /usr/bin/nvidia-smi topo -m", Some(Kind::Topo)),
            ("+ nvidia-smi topo -p2p r", Some(Kind::P2p)),
            ("nvidia-smi pmon -c 1", Some(Kind::Pmon)),
            ("$ watch -n 1 nvidia-smi", Some(Kind::Table)),
            ("$ CUDA_VISIBLE_DEVICES=0 nvidia-smi dmon", Some(Kind::Dmon)),
            ("sudo fuser -v /dev/nvidia0", Some(Kind::Fuser)),
            ("$ sudo dmesg", Some(Kind::KernelLog)),
            ("journalctl -k -b -1", Some(Kind::KernelLog)),
            ("$ gpustat", Some(Kind::Gpustat)),
            ("watch gpustat -cpu", Some(Kind::Gpustat)),
            ("sudo nvidia-smi mig -lgip", Some(Kind::Mig)),
        ] {
            assert_eq!(read(line).and_then(|command| command.kind), kind, "{line}");
        }
    }

    #[test]
    fn query_fields_are_read_from_command() {
        let command = read("$ nvidia-smi --query-gpu=index,memory.used --format=csv,noheader");
        assert_eq!(command.unwrap().fields.unwrap(), ["index", "memory.used"]);
    }

    #[test]
    fn prose_rows_and_errors_are_not_commands() {
        for line in [
            "nvidia-smi has failed",
            "nvidia-smi: command not found",
            "/dev/nvidia0:        root  7 F...m nvidia-smi",
            "# gpu   pid  type    sm   command",
            "fuser is a tool",
            "0, nvidia-smi, 5 MiB",
            "| 0  C  nvidia-smi |",
            "",
        ] {
            assert_eq!(read(line), None, "{line}");
        }
        assert!(is_between("ann@box:~$") && is_between("```text"));
        for line in ["# gpu   pwr", "x.cc:1] Created (/device:GPU:0) -> x", "0, 5 %, C:\\a> b"] {
            assert!(!is_between(line), "{line}");
        }
    }

    #[test]
    fn arguments_of_nvidia_smi_give_kind_and_fields() {
        for (arguments, kind) in [
            ("", Some(Kind::Table)),
            ("-q", Some(Kind::Q)),
            ("--query -i 0", Some(Kind::Q)),
            ("-x -q", Some(Kind::Xml)),
            ("-q --xml-format", Some(Kind::Xml)),
            ("-L", Some(Kind::List)),
            ("--list-gpus", Some(Kind::List)),
            ("topo -m", Some(Kind::Topo)),
            ("topo -p r", Some(Kind::P2p)),
            ("topo --p2p_status r", Some(Kind::P2p)),
            ("pmon -c 1", Some(Kind::Pmon)),
            ("dmon", Some(Kind::Dmon)),
            ("mig -lgi", Some(Kind::Mig)),
            ("nvlink -s", None),
            ("--gpu-reset", None),
            ("--query-gpu=index --format=csv", Some(Kind::QueryGpu)),
            ("--query-compute-apps=pid --format=csv", Some(Kind::QueryApps)),
            ("--query-apps=pid --format=csv", Some(Kind::QueryApps)),
            ("--query-accounted-apps=pid --format=csv", Some(Kind::QueryApps)),
            ("| grep -q MiB", Some(Kind::Table)),
            ("> x -q", Some(Kind::Table)),
            ("&& x -q", Some(Kind::Table)),
            ("; x -q", Some(Kind::Table)),
        ] {
            let command = read(&format!("$ nvidia-smi {arguments}")).unwrap();
            assert_eq!(command.kind, kind, "{arguments}");
        }
        let fields = |arguments: &str| read(&format!("nvidia-smi {arguments}")).unwrap().fields;
        assert_eq!(fields("--query-apps='pid,name'"), Some(vec!["pid".into(), "name".into()]));
        assert_eq!(fields("-q"), None);
        let many = format!("--query-gpu={}", vec!["a"; MAX_FIELDS + 1].join(","));
        assert_eq!(fields(&many).unwrap().len(), MAX_FIELDS);
    }

    #[test]
    fn command_without_prompt_needs_option_or_known_subcommand() {
        for (line, is) in [
            ("nvidia-smi", true),
            ("nvidia-smi topo", true),
            ("nvidia-smi mig -lgi", true),
            ("nvidia-smi nvlink", true),
            ("nvidia-smi -h", true),
            ("nvidia-smi works", false),
            ("nvidia-smi - works", false),
            ("lsof /dev/nvidia0", true),
            ("lsof is a tool", false),
            ("dmesg shows it", false),
            ("$ lsof", true),
            ("time -n1 exec sudo -E lsof -d 3", true),
            ("-x=1 nvidia-smi", false),
            ("nohup nvidia-smi", false),
            ("| nvidia-smi |", false),
        ] {
            assert_eq!(read(line).is_some(), is, "{line}");
        }
        let long = |length: usize| format!("nvidia-smi {}", "-".repeat(length - 11));
        assert!(read(&long(8192)).is_some() && read(&long(8193)).is_none());
    }

    #[test]
    fn prompt_has_location_and_sign() {
        for (line, is) in [
            ("$", true),
            ("$ ls", true),
            ("$ls", false),
            ("# ls", false),
            ("% ls", false),
            ("/work# ls", true),
            ("~ # ls", true),
            ("ann@box % ls", true),
            ("box:/tmp$ ls", true),
            ("sh-5.1# ls", true),
            ("bash-5.1$ ls", true),
            ("(env) $ ls", true),
            ("[box] \u{276f} ls", true),
            ("\u{279c} ls", true),
            ("\u{2514}\u{2500}$ ls", true),
            ("\u{2570}\u{2500}$ ls", true),
            ("D:\\work>ls", true),
            ("PS D:\\> ls", true),
            ("a > b", false),
            ("costs 5 $ now", false),
            ("ann@box, bob$ ls", false),
            ("ann@box  x$ ls", false),
            ("<ann@box>$ ls", false),
            ("+ ls", true),
            ("+ls", false),
        ] {
            assert_eq!(is_between(line), is, "{line}");
        }
        let far = |length: usize| format!("~{}$ ls", "a".repeat(length));
        assert!(is_between(&far(118)) && !is_between(&far(119)));
    }

    const PIECES: &[&str] = &[
        "nvidia-smi",
        "fuser",
        "$",
        "#",
        ">",
        "@",
        "~",
        "C:\\",
        "-q",
        "--query-gpu=",
        ",",
        " ",
        "a",
        "\u{e9}",
        "\u{1f600}",
        "=",
        "1",
    ];

    proptest! {
        #[test]
        fn arbitrary_line_never_panics(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..30)) {
            let line = pieces.concat();
            read(&line);
            is_between(&line);
        }
    }
}

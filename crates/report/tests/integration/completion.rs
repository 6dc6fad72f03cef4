use super::fixture::{process, snapshot};
use gpu_core::{Pid, Process, ProcessInfo};
use gpu_report::completion::{Kind, lines, script};

#[test]
fn values_are_those_of_the_snapshot() {
    let now = snapshot();
    let gpus = Kind::Gpus.on(&now);
    let (whole, parts): (Vec<_>, Vec<_>) =
        gpus.iter().partition(|(value, _)| value.parse::<u32>().is_ok());
    assert_eq!(whole.iter().map(|(value, _)| value.as_str()).collect::<Vec<_>>(), ["0", "1", "2"]);
    assert!(parts.iter().all(|(value, about)| value.contains('-') && about.ends_with("of GPU 0")));
    let processes = lines(&Kind::Processes.on(&now));
    assert_eq!(processes, "100\talice python\n200\talice ghost\n700\troot Xorg\n");
    assert_eq!(lines(&Kind::Users.on(&now)), "alice\tuses a GPU\nroot\tuses a GPU\n");
    assert!(Kind::Leases.on(&now).is_empty());
}

#[test]
fn hostile_text_stays_in_its_line() {
    let mut now = snapshot();
    for (pid, name) in [(100, "a\tb\n900\tc"), (200, "\x1b[2J\u{202e}")] {
        let user = Ok(format!("u{pid}\n--yes"));
        let info = ProcessInfo { user, ..process(pid, name) };
        now.processes.insert(Pid(pid), Process::from(Ok(info)));
    }
    let processes = lines(&Kind::Processes.on(&now));
    let values: Vec<&str> =
        processes.lines().map(|line| line.split('\t').next().expect("a value")).collect();
    assert_eq!(values, ["100", "200", "700"], "{processes}");
    assert_eq!(processes.matches('\t').count(), 3, "{processes}");
    assert!(!processes.contains(['\x1b', '\u{202e}']), "{processes}");
    // No word of a shell has a line break, so these users cannot be completed.
    assert_eq!(lines(&Kind::Users.on(&now)), "root\tuses a GPU\n");
}

#[test]
fn markers_become_calls() {
    let marker = Kind::Gpus.name();
    let given = format!(
        "    prev=\"$3\"\n opts=\"--yes {marker}\"\n  COMPREPLY=( $(compgen -W \"${{opts}}\" -- \"${{cur}}\") )\n \
         --gpu)\n  COMPREPLY=($(compgen -W \"{marker}\" -- \"${{cur}}\"))\n --nvml)\n  \
         COMPREPLY=($(compgen -f \"${{cur}}\"))\n opts=\"-h\"\n  COMPREPLY=( $(compgen -W \"${{opts}}\" -- x) )\n"
    );
    let in_bash = script("bash", &given, &[]);
    let (functions, in_bash) = in_bash.split_once("}\n\n").expect("a function");
    assert!(functions.contains("_gpuws_values() {"));
    assert_eq!(
        in_bash,
        "    prev=\"$3\"\n    [[ \"${prev}\" != \"=\" ]] || prev=\"${COMP_WORDS[COMP_CWORD - 2]}\"\n \
         opts=\"--yes\"\n  COMPREPLY=( $(compgen -W \"${opts}\" -- \"${cur}\") )\n  \
         [[ \"${cur}\" == -* ]] || _gpuws_values gpu-values\n --gpu)\n  _gpuws_values gpu-values\n --nvml)\n  \
         COMPREPLY=()\n opts=\"-h\"\n  COMPREPLY=( $(compgen -W \"${opts}\" -- x) )\n"
    );
    assert!(script("zsh", &format!("_gpuws() {{\n'--gpu=[G]:GPU:({marker})'\n"), &[]).ends_with(
        "_gpuws() {\n    local gpuws_at=$CURRENT; local -a gpuws_words=(\"${words[@]}\")\n\
         '--gpu=[G]:GPU:_gpuws_values gpu-values'\n"
    ));
    let in_fish = script(
        "fish",
        &format!("complete -l gpu -a \"{marker}\\t''\"\n"),
        &[("sim", Kind::Machines)],
    );
    assert!(in_fish.ends_with(
        "complete -l gpu -a \"(__gpuws_values gpu-values)\"\ncomplete -c gpuws -n \
         \"__fish_gpuws_using_subcommand sim\" -f -a \"(__gpuws_values machine-values)\"\n"
    ));
}

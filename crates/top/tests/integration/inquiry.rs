//! Data that is read only when the user asks for it.

use crate::fixture::{Made, key, lines, made, options, press};
use gpu_core::{Environment, Pid, ProcessKey, StartTime};
use gpu_top::inquiry::{Answer, Inquiry};
use gpu_top::{Effect, Event, Options, Overlay, State};
use ratatui_crossterm::crossterm::event::KeyCode;

fn state(options: Options) -> State {
    let mut state = State::new(options, (80, 30));
    let rows = [Made::new(0, 7, "bob", 10, "job"), Made::new(0, 8, "bob", 5, "other")];
    state.update(Event::Frame(Box::new(made(1, &rows, 1000))));
    state
}

fn process(pid: u32) -> ProcessKey {
    ProcessKey { pid: Pid(pid), start: Some(StartTime(1)) }
}

fn read(pid: u32, variables: &[(&str, &str)]) -> Event {
    let variables =
        variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    let environment = Environment { variables, is_cut: false };
    Event::Answer(Box::new(Answer::Environment(process(pid), Ok(environment))))
}

#[test]
fn environment_hides_possible_secrets_until_requested() {
    let mut state = state(options());
    assert_eq!(press(&mut state, "e"), Effect::Nothing, "no row is selected");
    assert_eq!(press(&mut state, "je"), Effect::Ask(Inquiry::Environment(process(7))));
    assert!(lines(&state).contains("reading …"));
    state.update(read(7, &[("RANK", "3"), ("HF_TOKEN", "hf_abc"), ("EVIL", "\u{1b}[2J")]));
    let screen = lines(&state);
    assert!(screen.contains("RANK=3") && screen.contains("EVIL=\\x1b[2J"), "{screen}");
    assert!(screen.contains("HF_TOKEN=(hidden)") && !screen.contains("hf_abc"), "{screen}");
    press(&mut state, "v");
    assert!(lines(&state).contains("HF_TOKEN=hf_abc"));
    press(&mut state, "ee");
    state.update(read(7, &[("HF_TOKEN", "hf_abc")]));
    assert!(!lines(&state).contains("hf_abc"), "hidden again");
}

#[test]
fn long_values_can_be_read_to_their_end() {
    let mut state = state(options());
    press(&mut state, "je");
    let value = format!("{}:end", "/opt/some/where".repeat(20));
    state.update(read(7, &[("LIBRARIES", &value), ("RANK", "3")]));
    let screen = lines(&state);
    assert!(screen.contains(":end") && screen.contains("│ RANK=3"), "{screen}");
    let inside = screen
        .lines()
        .filter_map(|line| Some(line.strip_prefix("│ ")?.trim_end_matches("│").trim()));
    let all = inside.collect::<String>();
    assert!(all.contains(&format!("LIBRARIES={value}")), "{screen}");
}

#[test]
fn answer_about_another_process_is_not_shown() {
    let mut state = state(options());
    press(&mut state, "je");
    state.update(key(KeyCode::Esc));
    press(&mut state, "je");
    assert_eq!(state.update(read(7, &[("A", "1")])), Effect::Nothing);
    assert!(lines(&state).contains("reading …"), "{}", lines(&state));
    // While a process blocks its reader, it is not read again.
    state.update(key(KeyCode::Esc));
    assert_eq!(press(&mut state, "l"), Effect::Ask(Inquiry::Leases));
    state.update(key(KeyCode::Esc));
    assert_eq!(press(&mut state, "e"), Effect::Draw);
    let why = "failed to read the environment of process 8".to_owned();
    let answer = Answer::Environment(process(8), Err(why.clone()));
    state.update(Event::Answer(Box::new(answer)));
    assert!(lines(&state).contains(&why), "{}", lines(&state));
}

#[test]
fn leases_are_read_when_they_are_opened() {
    let mut state = state(options());
    assert_eq!(press(&mut state, "l"), Effect::Ask(Inquiry::Leases));
    assert_eq!(state.overlay(), Some(Overlay::Leases));
    let why = "failed to open the lease directory".to_owned();
    state.update(Event::Answer(Box::new(Answer::Leases(Err(why.clone())))));
    assert!(lines(&state).contains(&why));
    assert_eq!(press(&mut state, "l"), Effect::Draw);
    assert_eq!(state.overlay(), None);
}

#[test]
fn shown_leases_are_reread_after_each_snapshot() {
    let mut state = state(options());
    let frame_after = |state: &mut State, seconds: u64| {
        state.update(Event::Frame(Box::new(made(1, &[], seconds * 1000))))
    };
    let answer = || Event::Answer(Box::new(Answer::Leases(Err("no answer".to_owned()))));
    let ask = Effect::Ask(Inquiry::Leases);
    assert_eq!(press(&mut state, "l"), ask);
    state.update(answer());
    assert_eq!(frame_after(&mut state, 2), ask);
    // A snapshot right after the question does not trigger a repetition.
    assert_eq!(frame_after(&mut state, 3), Effect::Draw);
    state.update(answer());
    assert_eq!(frame_after(&mut state, 4), ask);
    // If reading takes longer than a snapshot, it is repeated once a minute, even if the box is
    // reopened.
    assert_eq!(
        (frame_after(&mut state, 5), frame_after(&mut state, 6)),
        (Effect::Draw, Effect::Draw)
    );
    assert_eq!(press(&mut state, "ll"), Effect::Draw);
    state.update(answer());
    assert_eq!(
        (frame_after(&mut state, 7), frame_after(&mut state, 63)),
        (Effect::Draw, Effect::Draw)
    );
    assert_eq!(frame_after(&mut state, 64), ask);
    state.update(answer());
    assert_eq!(press(&mut state, "l"), Effect::Draw);
    assert_eq!(frame_after(&mut state, 65), Effect::Draw, "they are not shown");
}

#[test]
fn view_without_a_machine_to_ask_has_no_such_keys() {
    let mut state = state(Options { can_ask: false, ..options() });
    assert_eq!(press(&mut state, "je"), Effect::Nothing);
    assert_eq!(press(&mut state, "l"), Effect::Nothing);
}

#[test]
fn details_have_graphs_of_the_process_itself() {
    let mut state = State::new(options(), (80, 40));
    for at in 1..=9 {
        let job = Made { cpu: at * 2500, ..Made::new(0, 7, "bob", at * 4000, "job") };
        state.update(Event::Frame(Box::new(made(1, &[job], at * 1000))));
    }
    press(&mut state, "j");
    state.update(key(KeyCode::Enter));
    let screen = lines(&state);
    // 2.5 CPUs; the memory has grown to 36,000 of 81,920 MiB.
    assert!(screen.contains("CPU ≤300%") && screen.contains("memory "), "{screen}");
    let graph = screen.lines().find(|line| line.contains("memory ")).unwrap();
    assert_eq!(graph.matches(|c| ('\u{2801}'..='\u{28ff}').contains(&c)).count(), 0, "{screen}");
    let below = screen.lines().skip_while(|line| !line.contains("memory ")).nth(1).unwrap();
    assert_eq!(below.matches(|c| ('\u{2801}'..='\u{28ff}').contains(&c)).count(), 5, "{screen}");
}

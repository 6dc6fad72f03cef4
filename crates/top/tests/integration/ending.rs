//! The dialog that ends processes.

use crate::fixture::{Made, key, lines, made, options, press};
use gpu_core::{Pid, ProcessKey, StartTime};
use gpu_report::text::Line;
use gpu_report::wording::reap::Paragraph;
use gpu_top::ending::{News, Shown};
use gpu_top::{Aim, Effect, Event, Options, Overlay, State};
use ratatui_crossterm::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

fn frame_with(pids: &[u32], at: u64) -> Event {
    let rows: Vec<Made> =
        pids.iter().map(|pid| Made::new(0, *pid, "bob", 1000 - u64::from(*pid), "job")).collect();
    Event::Frame(Box::new(made(1, &rows, at)))
}

fn state() -> State {
    let mut state = State::new(options(), (80, 24));
    state.update(frame_with(&[1, 2, 3], 1000));
    state
}

fn aim(pids: &[u32]) -> Aim {
    let key = |pid: &u32| ProcessKey { pid: Pid(*pid), start: Some(StartTime(1)) };
    Aim::Processes(pids.iter().map(key).collect())
}

fn said(text: &str) -> Vec<Paragraph> {
    vec![Paragraph { head: Line::new(), text: text.to_owned() }]
}

fn planned(number: u64, targets: usize) -> Event {
    let shown = Shown { text: said("the plan"), targets, obstacle: None };
    Event::Ending(News::Planned(number, Ok(shown)))
}

fn step(text: &str) -> Event {
    Event::Ending(News::Step(Line::new().plain(text)))
}

fn over(text: &str) -> Event {
    Event::Ending(News::Over(Ok(said(text))))
}

/// Returns a state in which the plan of process 1 is being executed.
fn running() -> State {
    let mut state = state();
    assert_eq!(press(&mut state, "jK"), Effect::Plan(1, aim(&[1])));
    state.update(planned(1, 1));
    assert_eq!(press(&mut state, "y"), Effect::Execute(1));
    state
}

#[test]
fn plan_is_shown_and_carried_out_only_after_its_confirmation() {
    let mut state = state();
    assert_eq!(press(&mut state, "jK"), Effect::Plan(1, aim(&[1])));
    assert!(lines(&state).contains("checking the current state of the machine"));
    assert_eq!(press(&mut state, "y"), Effect::Nothing, "there is no plan yet");
    assert_eq!(state.update(planned(1, 1)), Effect::Draw);
    let screen = lines(&state);
    assert!(screen.contains("the plan") && screen.contains("y: end 1 process   Esc: cancel"));
    let click = MouseEventKind::Down(MouseButton::Left);
    let click = MouseEvent { kind: click, column: 4, row: 20, modifiers: KeyModifiers::NONE };
    let control_y = KeyEvent::new(KeyCode::Char('y'), KeyModifiers::CONTROL);
    for event in [
        key(KeyCode::Enter),
        key(KeyCode::Char(' ')),
        key(KeyCode::Char('Y')),
        Event::Key(control_y),
        Event::Paste("y".to_owned()),
        Event::Mouse(click),
    ] {
        assert_eq!(state.update(event.clone()), Effect::Nothing, "{event:?}");
    }
    assert_eq!(press(&mut state, "y"), Effect::Execute(1));
    assert_eq!(press(&mut state, "y"), Effect::Nothing, "only once");
    state.update(step("SIGTERM  1 job"));
    state.update(over("freed 999 MiB"));
    let screen = lines(&state);
    assert!(screen.contains("SIGTERM  1 job") && screen.contains("freed 999 MiB"), "{screen}");
    state.update(key(KeyCode::Esc));
    assert_eq!((state.overlay(), state.record()), (None, None));
}

#[test]
fn escape_leaves_and_next_dialog_ignores_a_late_plan() {
    let mut state = state();
    press(&mut state, "jK");
    state.update(key(KeyCode::Esc));
    assert_eq!(state.overlay(), None);
    assert_eq!(press(&mut state, "jK"), Effect::Plan(2, aim(&[2])));
    assert_eq!(state.update(planned(1, 1)), Effect::Nothing);
    assert_eq!(press(&mut state, "y"), Effect::Nothing);
    state.update(planned(2, 1));
    assert_eq!(press(&mut state, "y"), Effect::Execute(2));
}

#[test]
fn plan_without_permitted_targets_cannot_be_confirmed() {
    for (targets, obstacle) in [(0, None), (2, Some("not on this machine".to_owned()))] {
        let mut state = state();
        press(&mut state, "jK");
        let shown = Shown { text: said("the plan"), targets, obstacle: obstacle.clone() };
        state.update(Event::Ending(News::Planned(1, Ok(shown))));
        assert_eq!(press(&mut state, "y"), Effect::Nothing);
        let screen = lines(&state);
        assert!(screen.contains("nothing was done; Esc: close"), "{screen}");
        assert!(obstacle.is_none_or(|why| screen.contains(&why)), "{screen}");
    }
    let mut state = state();
    press(&mut state, "jK");
    let why = "failed to read the ancestors of this process".to_owned();
    state.update(Event::Ending(News::Planned(1, Err(why.clone()))));
    assert!(lines(&state).contains(&why));
    assert_eq!(press(&mut state, "y"), Effect::Nothing);
}

#[test]
fn rows_freeze_during_dialog_while_snapshots_continue() {
    let mut state = state();
    press(&mut state, "jK");
    for at in [2000, 3000] {
        assert_eq!(state.update(frame_with(&[9], at)), Effect::Nothing);
    }
    assert_eq!(state.rows().count(), 3);
    assert_eq!(state.history(0).unwrap().len(), 3);
    state.update(key(KeyCode::Esc));
    assert_eq!(state.rows().count(), 1);
    // A pause outlasts the dialog.
    press(&mut state, "zjK");
    state.update(key(KeyCode::Esc));
    state.update(frame_with(&[1, 2], 4000));
    assert_eq!((state.is_paused(), state.rows().count()), (true, 1));
}

#[test]
fn tagged_processes_or_else_the_selected_one_are_ended() {
    let mut state = state();
    press(&mut state, "K");
    assert!(lines(&state).contains("no row is selected"), "{}", lines(&state));
    state.update(key(KeyCode::Esc));
    press(&mut state, "j  ");
    assert!(lines(&state).contains("*   0       1 bob"), "{}", lines(&state));
    assert_eq!(press(&mut state, "K"), Effect::Plan(2, aim(&[1, 2])));
    state.update(key(KeyCode::Esc));
    press(&mut state, "gU");
    assert_eq!(press(&mut state, "K"), Effect::Plan(3, aim(&[1])));
    // Tagging a process twice removes the tag.
    state.update(key(KeyCode::Esc));
    press(&mut state, "g g ");
    assert_eq!(press(&mut state, "K"), Effect::Plan(4, aim(&[2])));
}

#[test]
fn tags_outside_the_table_are_reported() {
    let mut state = state();
    press(&mut state, "j  /3");
    state.update(key(KeyCode::Enter));
    assert_eq!(state.rows().count(), 1);
    assert!(lines(&state).lines().next().unwrap().contains("2 tagged"), "{}", lines(&state));
    assert_eq!(press(&mut state, "gK"), Effect::Plan(1, aim(&[1, 2])));
    state.update(planned(1, 2));
    let screen = lines(&state);
    assert!(screen.contains("2 tagged processes; the table does not show 2 of them"), "{screen}");
    state.update(key(KeyCode::Esc));
    state.update(key(KeyCode::Esc));
    press(&mut state, "K");
    state.update(planned(2, 2));
    let screen = lines(&state);
    assert!(
        screen.contains("2 tagged processes ") && !screen.contains("does not show"),
        "{screen}"
    );
}

#[test]
fn dialog_of_a_box_is_about_its_process_not_tags() {
    let mut state = state();
    press(&mut state, "j g");
    state.update(key(KeyCode::Down));
    for opener in [KeyCode::Enter, KeyCode::Char('e')] {
        state.update(key(opener));
        let number = if opener == KeyCode::Enter { 1 } else { 2 };
        assert_eq!(press(&mut state, "K"), Effect::Plan(number, aim(&[2])));
        state.update(key(KeyCode::Esc));
    }
}

#[test]
fn plan_is_confirmed_only_after_its_end_was_on_the_screen() {
    let mut state = state();
    state.update(Event::Resize(48, 8));
    press(&mut state, "jK");
    let text = (1..=9).flat_map(|pid| said(&format!("would end {pid}"))).collect();
    let shown = Shown { text, targets: 9, obstacle: None };
    state.update(Event::Ending(News::Planned(1, Ok(shown))));
    assert!(state.is_proposing());
    while !lines(&state).contains("would end 9") {
        assert_eq!(press(&mut state, "y"), Effect::Nothing, "{}", lines(&state));
        let screen = lines(&state);
        assert!(screen.contains("PgDn: show the rest of the plan"), "{screen}");
        assert!(!screen.contains("y End"), "{screen}");
        state.update(key(KeyCode::PageDown));
    }
    assert!(lines(&state).contains("y: end 9 processes"), "{}", lines(&state));
    // The wheel does not skip a line either.
    state.update(key(KeyCode::Home));
    let second = lines(&state).lines().nth(3).unwrap().to_owned();
    let (kind, modifiers) = (MouseEventKind::ScrollDown, KeyModifiers::NONE);
    state.update(Event::Mouse(MouseEvent { kind, column: 4, row: 4, modifiers }));
    let above = lines(&state).lines().nth(2).unwrap().to_owned();
    let number = |line: &str| line.chars().filter(char::is_ascii_digit).collect::<String>();
    assert_eq!((number(&second), number(&above)), ("2".to_owned(), "3".to_owned()));
    // A plan that was read on a wide screen is not read on another one.
    state.update(key(KeyCode::Home));
    state.update(Event::Resize(49, 8));
    assert_eq!(press(&mut state, "y"), Effect::Nothing);
    state.update(key(KeyCode::End));
    assert!(lines(&state).contains("y End  Esc Leave  Down Scroll"), "{}", lines(&state));
    assert_eq!(press(&mut state, "y"), Effect::Execute(1));
}

#[test]
fn question_before_quitting_is_whole_on_a_narrow_terminal() {
    let mut state = running();
    state.update(Event::Resize(48, 12));
    press(&mut state, "q");
    let screen = lines(&state);
    assert!(screen.contains("q: send no further signal and quit"), "{screen}");
    assert!(screen.contains("Esc: continue"), "{screen}");
}

#[test]
fn unlisted_memory_is_ended_as_reap_does_for_the_device() {
    let mut frame = made(2, &[Made::new(0, 1, "bob", 10, "job")], 1000);
    let sample = frame.snapshot.devices[1].sample.as_mut().unwrap();
    sample.memory.used = Ok(gpu_core::Bytes::from_mib(5000));
    let id = frame.snapshot.devices[1].id().clone();
    let (snapshot, diagnosis) = (frame.snapshot, frame.diagnosis);
    let leases = gpu_steward::DeviceLeases::none();
    let filter = gpu_report::ProcessFilter::default();
    let user = |uid| format!("user {uid}");
    frame = gpu_top::Frame::of(snapshot, diagnosis, &leases, |_| true, &filter, &user);
    let mut state = State::new(options(), (80, 24));
    state.update(Event::Frame(Box::new(frame)));
    assert_eq!(press(&mut state, "GK"), Effect::Plan(1, Aim::Unlisted(id)));
}

#[test]
fn closed_dialog_continues_its_plan_and_can_be_reopened() {
    let mut state = running();
    state.update(key(KeyCode::Esc));
    assert_eq!(state.overlay(), None);
    assert!(lines(&state).contains("ending 1 process"), "{}", lines(&state));
    assert_eq!(state.update(step("SIGKILL  1 job")), Effect::Draw);
    assert_eq!(press(&mut state, "K"), Effect::Draw);
    assert!(lines(&state).contains("SIGKILL  1 job"), "{}", lines(&state));
    state.update(key(KeyCode::Esc));
    state.update(over("freed"));
    assert!(lines(&state).contains("K shows the result"), "{}", lines(&state));
    assert!(state.record().is_some());
    press(&mut state, "K");
    state.update(key(KeyCode::Esc));
    assert_eq!(press(&mut state, "K"), Effect::Plan(2, aim(&[1])));
}

#[test]
fn quitting_during_execution_asks_then_stops_after_step() {
    let mut state = running();
    state.update(key(KeyCode::Esc));
    assert_eq!(press(&mut state, "q"), Effect::Draw);
    assert_eq!(state.overlay(), Some(Overlay::Ending));
    assert!(lines(&state).contains("q: send no further signal and quit"));
    state.update(key(KeyCode::Esc));
    assert!(!lines(&state).contains("no further signal"), "{}", lines(&state));
    assert_eq!(press(&mut state, "q"), Effect::Draw, "it asks again");
    let control_c = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
    assert_eq!(state.update(control_c), Effect::Stop);
    assert!(state.is_ending());
    assert_eq!(state.update(over("interrupted")), Effect::Quit);
    assert!(state.record().unwrap().iter().any(|line| line.text == "interrupted"));
    // A user who does not wait for the step leaves at once.
    let mut state = running();
    assert_eq!(press(&mut state, "qq"), Effect::Stop);
    assert_eq!(press(&mut state, "q"), Effect::Quit);
}

#[test]
fn read_only_view_has_no_key_to_end_processes() {
    let mut state = State::new(Options { can_end: false, ..options() }, (100, 50));
    state.update(frame_with(&[1], 1000));
    for event in [key(KeyCode::Char('K')), key(KeyCode::F(9)), key(KeyCode::Char('y'))] {
        press(&mut state, "j");
        assert_eq!(state.update(event), Effect::Nothing);
    }
    press(&mut state, "?");
    assert!(!lines(&state).contains("F9"), "{}", lines(&state));
    assert!(!lines(&state).contains("K End"), "{}", lines(&state));
}

#[test]
fn illegible_plan_cannot_be_confirmed() {
    for size in [(80, 1), (3, 24), (20, 5), (24, 4), (47, 24), (80, 7)] {
        let mut state = State::new(options(), size);
        state.update(frame_with(&[1, 2, 3], 1000));
        press(&mut state, "jK");
        state.update(planned(1, 1));
        assert_eq!(press(&mut state, "y"), Effect::Nothing, "{size:?}: {}", lines(&state));
        let is_too_small = lines(&state).contains("too small to confirm");
        assert!(is_too_small || size.0 < 20 || size.1 < 4, "{size:?}: {}", lines(&state));
        state.update(Event::Resize(80, 24));
        assert!(lines(&state).contains("y: end 1 process"), "{size:?}: {}", lines(&state));
        assert_eq!(press(&mut state, "y"), Effect::Execute(1));
    }
}

#[test]
fn end_of_an_execution_quits_only_if_the_user_has_left() {
    let mut state = running();
    assert_eq!(state.update(step("SIGTERM  1 job")), Effect::Draw);
    assert_eq!(state.update(over("freed 999 MiB")), Effect::Draw);
    let mut state = running();
    assert_eq!(press(&mut state, "qq"), Effect::Stop);
    assert_eq!(state.update(step("SIGTERM  1 job")), Effect::Draw, "it is not over");
    assert_eq!(state.update(over("freed 999 MiB")), Effect::Quit);
}

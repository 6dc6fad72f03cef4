//! The view of a recording.

use crate::fixture::{Made, control, key, lines, made, options, press};
use gpu_top::history::Measure;
use gpu_top::replay::{Control, Playback, Replayed};
use gpu_top::rows::measured;
use gpu_top::{CpuTimes, Effect, Event, Options, State};
use ratatui_crossterm::crossterm::event::KeyCode;

fn state() -> State {
    let options = Options { replays: true, can_end: false, can_ask: false, ..options() };
    State::new(options, (100, 30))
}

#[test]
fn recording_being_opened_is_not_called_paused() {
    let screen = lines(&state());
    assert!(screen.contains("loading") && !screen.contains("paused"), "{screen}");
}

#[test]
fn recording_of_a_simulated_machine_is_named_once() {
    let mut state = state();
    let mut frame = frame_at(1000);
    frame.snapshot.origin = gpu_core::Origin::Simulated("made".to_owned());
    state.update(Event::Replayed(Replayed::Sought(Box::new(frame), None)));
    let header = lines(&state).lines().next().unwrap().to_owned();
    assert!(header.starts_with("recording of simulated machine made · driver"), "{header}");
    assert!(!header.contains("paused"), "that is not known yet: {header}");
}

fn frame_at(at: u64) -> gpu_top::Frame {
    let job = Made { cpu: at / 2, ..Made::new(0, 7, "bob", at / 10, "job") };
    made(1, &[job], at)
}

fn sought(at: u64) -> Event {
    let before = CpuTimes::of(&frame_at(at - 1000).snapshot);
    Event::Replayed(Replayed::Sought(Box::new(frame_at(at)), Some(before)))
}

fn playback(playback: Playback) -> Event {
    Event::Replayed(Replayed::Playback(playback))
}

#[test]
fn header_shows_recording_time_and_playback() {
    let mut state = state();
    state.update(sought(100_000));
    let header = |state: &State| lines(state).lines().next().unwrap().to_owned();
    state.update(playback(Playback { plays: true, speed: 1.0, ..Playback::default() }));
    assert!(header(&state).starts_with("recording of made"), "{}", header(&state));
    assert!(header(&state).ends_with("1970-01-01 00:01:40"), "{}", header(&state));
    state.update(playback(Playback { plays: true, speed: 10.0, ..Playback::default() }));
    assert!(header(&state).contains("×10"));
    state.update(playback(Playback { speed: 1.0, damaged: 3, ..Playback::default() }));
    assert!(header(&state).contains("3 samples damaged  paused"), "{}", header(&state));
    // The time remains when the names are cut.
    for columns in [60, 50] {
        state.update(Event::Resize(columns, 24));
        let header = header(&state);
        assert!(header.starts_with("recording") && header.ends_with("00:01:40"), "{header}");
    }
}

#[test]
fn unreadable_recording_says_so() {
    let mut state = state();
    state.update(playback(Playback { plays: true, speed: 1.0, ..Playback::default() }));
    assert!(lines(&state).contains("no sample near this time can be read"), "{}", lines(&state));
}

#[test]
fn jump_fills_graphs_and_cpu_shares_from_the_frames_before_it() {
    let mut state = state();
    for at in [1000, 2000, 3000] {
        state.update(Event::Replayed(Replayed::Played(Box::new(frame_at(at)))));
    }
    assert_eq!(state.history(0).unwrap().len(), 3);
    state.update(sought(9_000_000));
    assert_eq!(state.history(0).unwrap().len(), 1, "what was shown before is not its past");
    assert_eq!(state.rows().next().unwrap().cpu, Some(50));
    let at = gpu_core::Timestamp;
    let past = [8_000_000, 8_500_000];
    let past = past.map(|time| (at(time), measured(&frame_at(time).snapshot, |_| true)));
    state.update(Event::Replayed(Replayed::Played(Box::new(frame_at(9_001_000)))));
    let stale = Event::Replayed(Replayed::Past(at(9_000_000), past.to_vec()));
    assert_eq!(state.update(stale), Effect::Nothing, "another frame is shown by now");
    state.update(sought(9_000_000));
    let effect = state.update(Event::Replayed(Replayed::Past(at(9_000_000), past.to_vec())));
    assert_eq!((effect, state.history(0).unwrap().len()), (Effect::Draw, 3));
    assert!(state.history(0).unwrap().back(Measure::Memory, 2).is_some());
}

#[test]
fn keys_move_the_time_of_the_recording() {
    let mut state = state();
    state.update(sought(100_000));
    for (code, control) in [
        (KeyCode::Left, Control::By(-10)),
        (KeyCode::Right, Control::By(10)),
        (KeyCode::Char('['), Control::Step(-1)),
        (KeyCode::Char(']'), Control::Step(1)),
        (KeyCode::Char('{'), Control::First),
        (KeyCode::Char('}'), Control::Last),
        (KeyCode::Char('+'), Control::Faster),
        (KeyCode::Char('-'), Control::Slower),
        (KeyCode::Char('z'), Control::Toggle),
    ] {
        assert_eq!(state.update(key(code)), Effect::Play(control));
    }
    press(&mut state, "g10:0x");
    state.update(key(KeyCode::Backspace));
    press(&mut state, "0");
    assert!(lines(&state).contains("time: 10:00█"), "{}", lines(&state));
    let to = Control::To("10:00".to_owned());
    assert_eq!(state.update(key(KeyCode::Enter)), Effect::Play(to));
    let refused = || playback(Playback { objection: Some("no".to_owned()), ..Playback::default() });
    state.update(refused());
    assert!(lines(&state).lines().last().unwrap().starts_with("time: 10:00█  no"), "typed again");
    // The reason disappears with the next key or paste.
    state.update(Event::Paste(format!("5\u{1b}{}", "9".repeat(99))));
    let time = format!("10:005{}", "9".repeat(34));
    let last = lines(&state).lines().last().unwrap().to_owned();
    assert!(last.starts_with(&format!("time: {time}█  10:00, -5m")), "{last}");
    assert_eq!(state.update(key(KeyCode::Enter)), Effect::Play(Control::To(time)));
    state.update(sought(100_000));
    // It is not about the typed time.
    state.update(refused());
    assert!(lines(&state).lines().last().unwrap().starts_with("no"));
    press(&mut state, "/b");
    assert!(lines(&state).lines().last().unwrap().starts_with("filter: b"), "{}", lines(&state));
    state.update(key(KeyCode::Esc));
    // Nor does it ask for the time again after the user has moved on.
    press(&mut state, "g10:00");
    state.update(control('u'));
    press(&mut state, "9");
    assert_eq!(state.update(key(KeyCode::Enter)), Effect::Play(Control::To("9".to_owned())));
    press(&mut state, "/");
    state.update(refused());
    press(&mut state, "b");
    assert!(lines(&state).lines().last().unwrap().starts_with("filter: b"), "{}", lines(&state));
    state.update(key(KeyCode::Esc));
    state.update(playback(Playback { at_end: true, ..Playback::default() }));
    assert!(!lines(&state).lines().last().unwrap().starts_with("no"), "{}", lines(&state));
    press(&mut state, "gq");
    state.update(key(KeyCode::Esc));
    assert_eq!(press(&mut state, "q"), Effect::Quit, "q is text only while a time is typed");
}

#[test]
fn recording_offers_no_key_acting_on_the_present() {
    let mut state = state();
    state.update(sought(100_000));
    for letter in ["jK", "e", "l"] {
        assert_eq!(press(&mut state, letter), Effect::Nothing);
    }
    press(&mut state, "?");
    let help = lines(&state);
    assert!(help.contains("10 s forward") && !help.contains("F9"), "{help}");
    assert!(help.contains("│ g            go to a time"), "{help}");
    state.update(key(KeyCode::PageDown));
    let rest = lines(&state);
    assert!(rest.contains("│ Home         first row"), "{rest}");
    assert!(!help.contains("tag") && !rest.contains(" tag "), "{help}{rest}");
}

#[test]
fn live_view_has_no_keys_of_a_recording() {
    let mut state = State::new(options(), (80, 24));
    state.update(Event::Frame(Box::new(frame_at(1000))));
    for code in [KeyCode::Left, KeyCode::Char('['), KeyCode::Char('+')] {
        assert_eq!(state.update(key(code)), Effect::Nothing);
    }
}

#[test]
fn recording_is_never_late() {
    let mut state = state();
    state.update(sought(100_000));
    let before = lines(&state);
    let tick = |seconds| Event::Tick(std::time::Duration::from_secs(seconds));
    assert_eq!(state.update(tick(60)), Effect::Nothing);
    assert_eq!(lines(&state), before);
    // The present is.
    let mut live = State::new(options(), (80, 24));
    assert_eq!(live.update(tick(60)), Effect::Draw);
    assert_eq!(live.update(tick(60)), Effect::Nothing, "only whole seconds are shown");
    assert_eq!(live.update(tick(61)), Effect::Draw);
    assert!(lines(&live).contains("no answer from the machine for 61 s"), "{}", lines(&live));
}

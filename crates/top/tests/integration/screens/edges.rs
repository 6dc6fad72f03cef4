//! The first and the last line.

use super::{machine, many, shown, watched};
use crate::fixture::{key, lines, made, options, press};
use gpu_core::{ErrorKind, Fault, Origin};
use gpu_top::replay::{Playback, Replayed};
use gpu_top::{Event, Options, State};
use ratatui_crossterm::crossterm::event::KeyCode;
use snapbox::{assert_data_eq, str};

fn first(state: &State) -> String {
    lines(state).lines().next().unwrap().to_owned()
}

fn last(state: &State) -> String {
    lines(state).lines().last().unwrap().to_owned()
}

/// Returns a line of the screen at each of these widths.
fn at_widths(
    state: &mut State,
    widths: impl IntoIterator<Item = u16>,
    line: fn(&State) -> String,
) -> String {
    let each = widths.into_iter().map(|width| {
        state.update(Event::Resize(width, 24));
        line(state) + "\n"
    });
    each.collect()
}

#[test]
fn header_drops_counts_then_the_driver_then_the_date() {
    let mut frame = many(3, 2);
    frame.devices[1].is_free = false;
    let mut state = shown(options(), (100, 24), [frame]);
    let widths = [100, 77, 76, 70, 60, 50, 40, 35, 34, 30, 25, 24, 20, 12, 6, 1];
    assert_data_eq!(
        at_widths(&mut state, widths, first),
        str![[r#"
made · driver 1 · 3 GPUs, 1 free, 1 MIG device free                              1970-01-01 00:00:01
made · driver 1 · 3 GPUs, 1 free, 1 MIG device free       1970-01-01 00:00:01
made · driver 1 · 3 GPUs, 1 free, 1 MIG device free      1970-01-01 00:00:01
made · driver 1 · 3 GPUs, 1 free, 1 MIG device free           00:00:01
made · driver 1                          1970-01-01 00:00:01
made · driver 1                1970-01-01 00:00:01
made · driver 1      1970-01-01 00:00:01
made · driver 1            00:00:01
made · driver 1           00:00:01
made · driver 1       00:00:01
made · driver 1  00:00:01
made            00:00:01
made        00:00:01
m…  00:00:01
  00:…
…

"#]]
    );
}

#[test]
fn header_names_findings_the_machine_and_the_driver_fault() {
    let mut frame = machine(1000);
    frame.snapshot.origin = Origin::Simulated("labbox".to_owned());
    let state = shown(options(), (110, 24), [frame.clone()]);
    assert_data_eq!(
        first(&state),
        str![
            "made · simulated machine labbox · driver 1 · 3 GPUs, 1 free                                1970-01-01 00:00:01"
        ]
    );
    frame.snapshot.hostname = Ok("labbox".to_owned());
    frame.snapshot.driver =
        Err(Fault { kind: ErrorKind::TimedOut, text: "query the driver: no answer".to_owned() });
    let mut state = shown(options(), (110, 24), [frame.clone()]);
    assert_data_eq!(
        first(&state),
        str![
            "simulated machine labbox · no answer in time                                               1970-01-01 00:00:01"
        ]
    );
    let since = std::time::Duration::from_secs(12);
    state.update(Event::Stalled { what: "waiting for nvmlInit".to_owned(), since });
    assert_data_eq!(first(&state), str!["simulated machine labbox · waiting for nvmlInit"]);
    state.update(Event::Frame(Box::new(frame.clone())));
    state.update(Event::Tick(since));
    assert_data_eq!(
        first(&state),
        str!["simulated machine labbox · no answer from the machine for 12 s"]
    );
    frame.devices.clear();
    assert_data_eq!(
        first(&shown(options(), (110, 24), [frame])),
        str![
            "simulated machine labbox                                                                   1970-01-01 00:00:01"
        ]
    );
}

#[test]
fn header_shows_the_modes_of_the_view_before_the_time() {
    let mut state = watched((110, 24));
    press(&mut state, "j jFz");
    assert_data_eq!(
        first(&state),
        str![
            "made · driver 1 · 3 GPUs, 1 free                      1 tagged  paused  following 4194300  1970-01-01 00:00:09"
        ]
    );
    let options = Options { replays: true, ..options() };
    let mut state = shown(options, (110, 24), [machine(1000)]);
    let mut played = |playback| {
        state.update(Event::Replayed(Replayed::Playback(playback)));
        first(&state)
    };
    let slow = Playback { plays: true, speed: 0.5, damaged: 1, ..Playback::default() };
    assert_data_eq!(
        played(slow),
        str![
            "recording of made · driver 1 · 3 GPUs, 1 free                      1 sample damaged  ×0.5  1970-01-01 00:00:01"
        ]
    );
    let ended = Playback { plays: true, speed: 1.0, at_end: true, ..Playback::default() };
    assert_data_eq!(
        played(ended),
        str![
            "recording of made · driver 1 · 3 GPUs, 1 free                                         end  1970-01-01 00:00:01"
        ]
    );
    let stopped = Playback { speed: 2.0, ..Playback::default() };
    assert_data_eq!(
        played(stopped),
        str![
            "recording of made · driver 1 · 3 GPUs, 1 free                                      paused  1970-01-01 00:00:01"
        ]
    );
}

#[test]
fn hints_at_keys_end_where_the_next_one_does_not_fit() {
    let widths = [120, 90, 80, 60, 47, 46, 45, 44, 30, 20, 10, 5];
    assert_data_eq!(
        at_widths(&mut watched((80, 24)), widths, last),
        str![[r#"
q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End  z Pause  Esc Clear
q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End  z Pause
q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End
q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details
q Quit  ? Help  / Filter  s Sort  r Reverse
q Quit  ? Help  / Filter  s Sort  r Reverse
q Quit  ? Help  / Filter  s Sort  r Reverse
q Quit  ? Help  / Filter  s Sort  r Reverse
q Quit  ? Help  / Filter
q Quit  ? Help
q Quit


"#]]
    );
    let read_only = Options { can_end: false, can_ask: false, ..options() };
    let mut state = shown(read_only, (80, 24), [machine(1000)]);
    assert_data_eq!(
        at_widths(&mut state, [120], last),
        str![[r#"
q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  z Pause  Esc Clear

"#]]
    );
    let replays = Options { replays: true, ..options() };
    let mut state = shown(replays, (80, 24), [machine(1000)]);
    assert_data_eq!(
        at_widths(&mut state, [120], last),
        str![[r#"
Right +10 s  ] Step  + Faster  g Time  q Quit  ? Help  / Filter  s Sort  r Reverse  Enter Details  t Tree  K End

"#]]
    );
}

#[test]
fn filter_keeps_its_end_visible_while_it_is_edited() {
    let mut state = watched((80, 24));
    press(&mut state, "/user=bob,alice,bartholomew-von-x py gpu=");
    let widths = [100, 83, 82, 60, 40, 20, 8];
    assert_data_eq!(
        at_widths(&mut state, widths, last),
        str![[r#"
filter: user=bob,alice,bartholomew-von-x py gpu=█  not used: gpu=                        2 of 5 rows
filter: user=bob,alice,bartholomew-von-x py gpu=█  not used: gpu=       2 of 5 rows
filter: user=bob,alice,bartholomew-von-x py gpu=█  not used: gpu=      2 of 5 rows
filter: …rtholomew-von-x py gpu=█  not used: gp… 2 of 5 rows
filter: …von-x py gpu=█  no… 2 of 5 rows
filter:  2 of 5 rows
 2 of 5…

"#]]
    );
    state.update(key(KeyCode::Enter));
    assert_data_eq!(
        at_widths(&mut state, [100, 60, 30], last),
        str![[r#"
filter: user=bob,alice,bartholomew-von-x py gpu=  / edits, Esc clears  not used: gpu=    2 of 5 rows
filter: …rtholomew-von-x py gpu=  / edits, Esc … 2 of 5 rows
filter: … py gpu=… 2 of 5 rows

"#]]
    );
}

#[test]
fn typed_time_is_shown_with_a_hint_or_the_objection() {
    let mut state = shown(Options { replays: true, ..options() }, (70, 24), [made(1, &[], 1000)]);
    press(&mut state, "g1x");
    assert_data_eq!(last(&state), str!["time: 1x█  10:00, -5m from the end, 2025-03-03T10:00"]);
    state.update(key(KeyCode::Enter));
    let objection = Some("no time: 1x".to_owned());
    let playback = Playback { objection, ..Playback::default() };
    state.update(Event::Replayed(Replayed::Playback(playback.clone())));
    assert_data_eq!(last(&state), str!["time: 1x█  no time: 1x"]);
    state.update(key(KeyCode::Esc));
    state.update(Event::Replayed(Replayed::Playback(playback)));
    assert_data_eq!(last(&state), str!["no time: 1x"]);
}

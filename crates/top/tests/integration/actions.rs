//! The effects of each key and the mouse.

use crate::fixture::{Made, control, key, lines, made, options, press};
use gpu_core::{Pid, ProcessKey, StartTime};
use gpu_top::history::Measure;
use gpu_top::inquiry::Inquiry;
use gpu_top::keys::{Action, BINDINGS, Scope};
use gpu_top::rows::{Column, RowKey, Subject};
use gpu_top::{Aim, Effect, Event, Options, Overlay, State};
use ratatui_crossterm::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};

fn three() -> Vec<Made> {
    vec![
        Made::new(0, 30, "carol", 100, "alpha"),
        Made::new(0, 10, "bob", 300, "charlie"),
        Made::new(1, 20, "alice", 200, "bravo"),
    ]
}

fn state() -> State {
    let mut state = State::new(options(), (80, 24));
    state.update(Event::Frame(Box::new(made(2, &three(), 1000))));
    state
}

fn pids(state: &State) -> Vec<u32> {
    state.rows().map(|row| row.pid().map_or(0, |pid| pid.0)).collect()
}

fn process(gpu: u32, pid: u32) -> Option<RowKey> {
    let key = ProcessKey { pid: Pid(pid), start: Some(StartTime(1)) };
    Some(RowKey { gpu: Some(gpu), subject: Subject::Process(key) })
}

#[test]
fn keys_end_or_stop_the_program() {
    for event in [key(KeyCode::Char('q')), key(KeyCode::F(10)), control('c')] {
        assert_eq!(state().update(event), Effect::Quit);
    }
    assert_eq!(state().update(control('z')), Effect::Suspend);
    assert_eq!(state().update(control('l')), Effect::Repaint);
    assert_eq!(state().update(key(KeyCode::Char('v'))), Effect::Nothing);
}

#[test]
fn escape_never_quits_and_clears_one_thing_after_another() {
    let mut state = state();
    press(&mut state, "/al");
    state.update(key(KeyCode::Enter));
    press(&mut state, "j");
    state.update(key(KeyCode::Enter));
    let shown = |state: &State| {
        (state.overlay(), state.filter().text().to_owned(), state.selected().is_some())
    };
    assert_eq!(shown(&state), (Some(Overlay::Details), "al".to_owned(), true));
    for expected in [
        (None, "al".to_owned(), true),
        (None, String::new(), true),
        (None, String::new(), false),
        (None, String::new(), false),
    ] {
        assert_eq!(state.update(key(KeyCode::Esc)), Effect::Draw);
        assert_eq!(shown(&state), expected);
    }
}

#[test]
fn rows_are_sorted_by_each_direct_key_and_reversed() {
    let mut state = state();
    assert_eq!((state.sort(), pids(&state)), ((Column::Gpu, false), vec![10, 30, 20]));
    for (letter, column, sorted) in [
        ("m", Column::Memory, [10, 20, 30]),
        ("p", Column::Pid, [10, 20, 30]),
        ("u", Column::User, [20, 10, 30]),
        ("c", Column::Command, [30, 20, 10]),
        ("d", Column::Gpu, [10, 30, 20]),
    ] {
        press(&mut state, letter);
        assert_eq!((state.sort(), pids(&state)), ((column, false), sorted.to_vec()));
    }
    press(&mut state, "mr");
    assert_eq!((state.sort(), pids(&state)), ((Column::Memory, true), vec![30, 20, 10]));
    press(&mut state, "a");
    assert_eq!(state.sort(), (Column::Age, false));
}

#[test]
fn next_and_previous_column_pass_the_columns_on_the_screen() {
    use Column::{Age, Command, Gpu, Kind, Memory, Note, Pid, Sm, User};
    let mut state = state();
    for column in [Pid, User, Memory, Sm, Age, Kind, Note, Command, Gpu] {
        press(&mut state, "s");
        assert_eq!(state.sort().0, column);
        assert_eq!(lines(&state).matches(['▲', '▼']).count(), 1, "{}", lines(&state));
    }
    press(&mut state, "<");
    assert_eq!(state.sort().0, Command);
    state.update(key(KeyCode::F(6)));
    assert_eq!(state.sort().0, Gpu);
    // A column that does not fit is named where it can be read.
    let mut state = State::new(Options { sort: (Column::Job, false), ..options() }, (80, 24));
    state.update(Event::Frame(Box::new(made(2, &three(), 1000))));
    assert!(lines(&state).lines().next().unwrap().contains("sorted by JOB"), "{}", lines(&state));
    press(&mut state, "s");
    assert_eq!(state.sort().0, Gpu);
    assert!(!lines(&state).contains("sorted by"), "{}", lines(&state));
}

/// Opens a box over the table.
fn open(state: &mut State, overlay: Overlay) {
    let opener = match overlay {
        Overlay::Help => KeyCode::Char('?'),
        Overlay::Details => KeyCode::Enter,
        Overlay::Environment => KeyCode::Char('e'),
        Overlay::Leases => KeyCode::Char('l'),
        Overlay::Ending => KeyCode::Char('K'),
    };
    state.update(key(opener));
    assert_eq!(state.overlay(), Some(overlay));
}

const BOXES: [Overlay; 4] =
    [Overlay::Help, Overlay::Details, Overlay::Environment, Overlay::Leases];

#[test]
fn table_keys_have_no_effect_under_a_box() {
    for overlay in BOXES {
        for letter in "TUxFrs<>dmpuact/".chars() {
            let mut state = state();
            press(&mut state, "j");
            open(&mut state, overlay);
            assert_eq!(press(&mut state, &letter.to_string()), Effect::Nothing, "{letter}");
            assert_eq!((state.overlay(), state.sort()), (Some(overlay), (Column::Gpu, false)));
            assert_eq!(press(&mut state, "\u{7f}q"), Effect::Quit, "{letter}: no text is typed");
        }
        // Space turns the page and tags no row.
        let mut state = state();
        press(&mut state, "j");
        open(&mut state, overlay);
        press(&mut state, " ");
        state.update(key(KeyCode::Esc));
        assert!(!lines(&state).contains("tagged"), "{}", lines(&state));
    }
    let mut state = state();
    open(&mut state, Overlay::Help);
    let first = lines(&state);
    press(&mut state, " ");
    assert_ne!(lines(&state), first);
    // A page is what fits: no line is skipped.
    let row = |screen: &str, at: usize| screen.lines().nth(at).unwrap().to_owned();
    state.update(key(KeyCode::Up));
    assert_eq!(row(&lines(&state), 2), row(&first, 21), "{first}\n{}", lines(&state));
}

#[test]
fn box_stays_with_its_process_after_its_end() {
    for (overlay, text) in [(Overlay::Details, "this row is gone"), (Overlay::Environment, "10 ")] {
        let mut state = state();
        press(&mut state, "j");
        open(&mut state, overlay);
        let mut left = three();
        left.retain(|process| process.pid != 10);
        state.update(Event::Frame(Box::new(made(2, &left, 2000))));
        assert_eq!((state.overlay(), state.selected()), (Some(overlay), process(0, 10)));
        let screen = lines(&state);
        let shown = screen.split('┌').nth(1).unwrap();
        assert!(shown.contains(text) && !shown.contains("alpha"), "{screen}");
        // It does not aim at another process.
        assert_eq!(press(&mut state, "K"), Effect::Draw);
        assert!(lines(&state).contains("this row is gone"), "{}", lines(&state));
    }
    for overlay in [Overlay::Help, Overlay::Leases] {
        let mut state = state();
        press(&mut state, "j");
        open(&mut state, overlay);
        state.update(Event::Frame(Box::new(made(2, &three()[..1], 2000))));
        assert_eq!(state.selected(), process(0, 10));
        assert_eq!(press(&mut state, "K"), Effect::Nothing);
    }
}

#[test]
fn details_of_a_row_stay_while_the_filter_hides_it() {
    let mut state = state();
    press(&mut state, "/ch");
    state.update(key(KeyCode::Enter));
    press(&mut state, "j");
    open(&mut state, Overlay::Details);
    let mut renamed = three();
    renamed[1].command = "zulu".to_owned();
    state.update(Event::Frame(Box::new(made(2, &renamed, 2000))));
    assert!(lines(&state).contains("10 zulu"), "{}", lines(&state));
    let chosen = ProcessKey { pid: Pid(10), start: Some(StartTime(1)) };
    assert_eq!(press(&mut state, "K"), Effect::Plan(1, Aim::Processes(vec![chosen])));
}

#[test]
fn hidden_followed_process_has_not_ended_and_escape_unfollows() {
    let mut state = state();
    press(&mut state, "jF/zzz");
    state.update(key(KeyCode::Enter));
    assert!(lines(&state).contains("following 10"), "{}", lines(&state));
    state.update(Event::Frame(Box::new(made(2, &three()[..1], 2000))));
    assert!(lines(&state).contains("has ended: 10"), "{}", lines(&state));
    for _ in 0..2 {
        state.update(key(KeyCode::Esc));
    }
    assert!(!lines(&state).contains("has ended"), "{}", lines(&state));
}

#[test]
fn mark_of_tagged_rows_covers_no_text() {
    let only = Options { columns: vec![Column::Command, Column::Pid], ..options() };
    for options in [options(), only] {
        let mut state = State::new(options, (80, 24));
        let long = [Made::new(0, 4_194_303, "bob", 300, "python"), three().remove(2)];
        state.update(Event::Frame(Box::new(made(2, &long, 1000))));
        press(&mut state, "j ");
        let screen = lines(&state);
        let row = screen.lines().find(|line| line.starts_with("* ")).expect(&screen);
        assert!(row.contains("4194303") && row.contains("python"), "{screen}");
        assert!(screen.lines().next().unwrap().contains("1 tagged"), "{screen}");
        press(&mut state, "U");
        assert!(!lines(&state).contains("* "), "{}", lines(&state));
    }
}

#[test]
fn columns_after_the_command_keep_their_room() {
    let columns = vec![Column::Pid, Column::Command, Column::Memory, Column::User];
    let mut state = State::new(Options { columns, ..options() }, (60, 24));
    let command = "x".repeat(100);
    let rows = [Made::new(0, 7, "bob", 3 << 10, &command), Made::new(0, 8, "eve", 10, "y")];
    state.update(Event::Frame(Box::new(made(1, &rows, 1000))));
    let screen = lines(&state);
    let row = screen.lines().find(|line| line.contains("xxx")).unwrap();
    assert!(row.ends_with("…   3.0 GiB bob"), "{screen}");
    assert!(screen.contains("   10 MiB eve"), "less than a GiB: {screen}");
}

#[test]
fn chosen_columns_are_shown_where_they_have_room() {
    let titles = |columns: &[Column], width: u16| {
        let options = Options { columns: columns.to_vec(), ..options() };
        let mut state = State::new(options, (width, 24));
        let rows = [Made::new(0, 7, "bob", 300, "python")];
        state.update(Event::Frame(Box::new(made(1, &rows, 1000))));
        let screen = lines(&state);
        let titles = screen.lines().find(|line| line.contains("PID")).unwrap().to_owned();
        titles.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    use Column::{Command, Cpu, Gpu, Host, Job, Kind, Memory, Pid};
    assert_eq!(titles(&[Gpu, Pid, Host, Cpu], 40), ["GPU▲", "PID", "HOST", "CPU%"]);
    // The command keeps some; the column that least needs a wide screen comes first.
    assert_eq!(titles(&[Host, Pid, Cpu, Command], 60), ["HOST", "PID", "CPU%", "COMMAND"]);
    assert_eq!(titles(&[Host, Pid, Cpu, Command], 50), ["PID", "CPU%", "COMMAND"]);
    assert_eq!(titles(&[Pid, Kind, Host, Cpu, Memory], 27), ["PID", "TYPE", "GPU-MEM"]);
    assert_eq!(titles(&[Pid, Job], 120), ["PID"], "nobody has a job");
    assert_eq!(titles(&[Pid, Command, Gpu], 80), ["PID", "COMMAND", "GPU▲"], "the mark has room");
}

#[test]
fn end_of_long_filter_and_its_unused_words_are_shown() {
    let mut state = state();
    press(&mut state, "/");
    state.update(Event::Paste(format!("{}end", "long ".repeat(40))));
    let footer = |state: &State| lines(state).lines().last().unwrap().to_owned();
    assert!(footer(&state).contains("long end█"), "{}", footer(&state));
    assert!(footer(&state).starts_with("filter: …"), "{}", footer(&state));
    state.update(control('u'));
    press(&mut state, "gpu=2-1");
    assert!(footer(&state).contains("not used: gpu=2-1"), "{}", footer(&state));
    state.update(control('u'));
    press(&mut state, "al gpu=x");
    assert!(footer(&state).contains("al gpu=x█  not used: gpu=x"), "{}", footer(&state));
    state.update(key(KeyCode::Backspace));
    press(&mut state, "1");
    assert!(!footer(&state).contains("not used"), "{}", footer(&state));
}

#[test]
fn selection_moves_by_row_page_and_to_the_ends() {
    let rows: Vec<Made> =
        (1..=100).map(|pid| Made::new(0, pid, "u", u64::from(200 - pid), "c")).collect();
    let mut state = State::new(options(), (80, 24));
    state.update(Event::Frame(Box::new(made(1, &rows, 1000))));
    assert_eq!(state.selected(), None);
    let visible = |state: &State| {
        lines(state).contains(&format!(" {} u ", state.selected_row().unwrap().pid().unwrap()))
    };
    let page = 11;
    for (code, pid) in [
        (KeyCode::Down, 1),
        (KeyCode::Down, 2),
        (KeyCode::Char('j'), 3),
        (KeyCode::Up, 2),
        (KeyCode::Char('k'), 1),
        (KeyCode::Up, 1),
        (KeyCode::PageDown, 1 + page),
        (KeyCode::PageDown, 1 + 2 * page),
        (KeyCode::PageUp, 1 + page),
        (KeyCode::End, 100),
        (KeyCode::Down, 100),
        (KeyCode::Home, 1),
        (KeyCode::Char('G'), 100),
        (KeyCode::Char('g'), 1),
    ] {
        state.update(key(code));
        assert_eq!(state.selected(), process(0, pid), "{code:?}");
        assert!(visible(&state), "{code:?}\n{}", lines(&state));
    }
}

#[test]
fn selection_survives_sorting_and_moves_when_process_ends() {
    let mut state = state();
    press(&mut state, "jj");
    assert_eq!(state.selected(), process(0, 30));
    for keys in ["m", "r", "p", "u", "s", "<", "d"] {
        press(&mut state, keys);
        assert_eq!(state.selected(), process(0, 30), "{keys}");
    }
    let mut more = three();
    more.insert(0, Made::new(0, 5, "zoe", 900, "zulu"));
    state.update(Event::Frame(Box::new(made(2, &more, 2000))));
    assert_eq!((state.selected(), pids(&state)), (process(0, 30), vec![5, 10, 30, 20]));
    more.retain(|process| process.pid != 30);
    state.update(Event::Frame(Box::new(made(2, &more, 3000))));
    assert_eq!(state.selected(), process(1, 20), "the row that took its place");
}

#[test]
fn filter_applies_while_it_is_typed() {
    let mut state = state();
    for (typed, shown) in
        [("/", vec![10, 30, 20]), ("c", vec![10, 30, 20]), ("h", vec![10]), ("x", vec![])]
    {
        press(&mut state, typed);
        assert_eq!(pids(&state), shown, "{typed}");
    }
    assert!(lines(&state).contains("filter: chx█"));
    assert!(lines(&state).contains("no row matches the filter"));
    state.update(key(KeyCode::Backspace));
    assert_eq!(pids(&state), [10]);
    state.update(key(KeyCode::Esc));
    assert_eq!((state.filter().text(), pids(&state).len()), ("", 3));
    for (text, shown) in [
        ("user=bob", vec![10]),
        ("user=bob,al", vec![10, 20]),
        ("gpu=1", vec![20]),
        ("gpu=0-1 user=c", vec![30]),
        ("gpu=", vec![10, 30, 20]),
        ("gpu=0-", vec![10, 30]),
        ("ALPHA", vec![30]),
        ("20", vec![20]),
        ("user=bob gpu=1", vec![]),
    ] {
        state.update(key(KeyCode::F(4)));
        state.update(control('u'));
        state.update(Event::Paste(format!("{text}\n\u{1b}")));
        assert_eq!((state.filter().text(), pids(&state)), (text, shown));
        state.update(key(KeyCode::Enter));
        assert!(lines(&state).contains(&format!("filter: {text}")));
    }
}

#[test]
fn letters_are_text_in_the_filter_but_control_c_quits() {
    let mut state = state();
    assert_eq!(press(&mut state, "/qrm"), Effect::Draw);
    assert_eq!((state.filter().text(), state.sort()), ("qrm", (Column::Gpu, false)));
    assert_eq!(state.update(control('c')), Effect::Quit);
    assert_eq!(state.update(key(KeyCode::F(10))), Effect::Quit);
}

#[test]
fn paused_view_keeps_rows_and_resumes_with_latest_snapshot() {
    let mut state = state();
    press(&mut state, "z");
    assert!(lines(&state).lines().next().unwrap().contains("paused"));
    let before = lines(&state);
    for at in [2000, 3000] {
        let last = vec![Made::new(0, at, "x", 1, "y")];
        let effect = state.update(Event::Frame(Box::new(made(2, &last, u64::from(at)))));
        assert_eq!(effect, Effect::Nothing);
    }
    assert_eq!(lines(&state), before);
    press(&mut state, "z");
    assert_eq!((state.is_paused(), pids(&state)), (false, vec![3000]));
    assert_eq!(state.history(0).unwrap().len(), 3, "no sample is lost");
}

#[test]
fn graphs_of_a_paused_view_stay_however_long_it_is_paused() {
    let mut state = State::new(options(), (80, 40));
    let frame_at = |at: u32| {
        let job = Made { cpu: u64::from(at) * 500, ..Made::new(0, 7, "bob", 4000, "job") };
        Event::Frame(Box::new(made(1, &[job], u64::from(at) * 1000)))
    };
    for at in 1..=9 {
        state.update(frame_at(at));
    }
    press(&mut state, "j");
    state.update(key(KeyCode::Enter));
    press(&mut state, "z");
    let before = lines(&state);
    assert!(before.contains("CPU ≤100%"), "{before}");
    for at in 10..400 {
        state.update(frame_at(at));
    }
    state.update(control('l'));
    assert_eq!(lines(&state), before);
    press(&mut state, "z");
    assert_ne!(lines(&state), before);
}

#[test]
fn wait_ends_with_next_snapshot_even_while_paused() {
    let mut state = state();
    press(&mut state, "z");
    let before = lines(&state);
    let what = "waiting for the driver".to_owned();
    state.update(Event::Stalled { what, since: std::time::Duration::from_secs(5) });
    assert!(lines(&state).contains("waiting for the driver"));
    let frame_at = |at| Event::Frame(Box::new(made(2, &three(), at)));
    assert_eq!(state.update(frame_at(2000)), Effect::Draw);
    assert_eq!(lines(&state), before);
    assert_eq!(state.update(frame_at(3000)), Effect::Nothing);
}

fn click(state: &mut State, text: &str) -> Effect {
    let screen = lines(state);
    let mut rows = screen.lines().enumerate();
    let (row, all) = rows.find(|(_, line)| line.contains(text)).unwrap();
    let column = all[..all.find(text).unwrap()].chars().count();
    mouse(state, MouseEventKind::Down(MouseButton::Left), column as u16, row as u16)
}

fn mouse(state: &mut State, kind: MouseEventKind, column: u16, row: u16) -> Effect {
    let modifiers = KeyModifiers::NONE;
    state.update(Event::Mouse(MouseEvent { kind, column, row, modifiers }))
}

#[test]
fn mouse_selects_rows_sorts_by_titles_and_scrolls() {
    let mut state = state();
    assert_eq!(click(&mut state, "alpha"), Effect::Draw);
    assert_eq!(state.selected(), process(0, 30));
    click(&mut state, "USER");
    assert_eq!(state.sort(), (Column::User, false));
    click(&mut state, "USER");
    assert_eq!(state.sort(), (Column::User, true));
    mouse(&mut state, MouseEventKind::ScrollUp, 0, 0);
    assert_eq!(state.selected(), process(0, 30), "it is the first row now");
    mouse(&mut state, MouseEventKind::ScrollDown, 0, 0);
    assert_eq!(state.selected(), process(1, 20));
    assert_eq!(mouse(&mut state, MouseEventKind::Down(MouseButton::Left), 0, 0), Effect::Nothing);
    press(&mut state, "?");
    mouse(&mut state, MouseEventKind::Down(MouseButton::Left), 5, 5);
    assert_eq!(state.overlay(), None);
}

#[test]
fn last_known_devices_stay_when_the_driver_does_not_answer() {
    let mut state = state();
    let mut busy = three();
    busy[1].cpu = 500;
    state.update(Event::Frame(Box::new(made(2, &busy, 2000))));
    let cpu = |state: &State| state.rows().map(|row| row.cpu).collect::<Vec<_>>();
    let known = [Some(50), Some(0), Some(0)];
    assert_eq!(cpu(&state), known);
    let mut blind = made(0, &[], 3000);
    blind.snapshot.driver = Err(gpu_core::Fault {
        kind: gpu_core::ErrorKind::TimedOut,
        text: "query the driver: no answer within 30 s".to_owned(),
    });
    // The driver lists its devices, and then hangs.
    let mut late = made(2, &[], 3000);
    for device in &mut late.snapshot.devices {
        device.sample = Err(gpu_core::Fault {
            kind: gpu_core::ErrorKind::TimedOut,
            text: "query GPU 0: no answer within 30 s".to_owned(),
        });
    }
    for blind in [blind, late] {
        state.update(Event::Frame(Box::new(blind)));
        let screen = lines(&state);
        assert!(screen.lines().next().unwrap().contains("GPUs as of 00:00:02"), "{screen}");
        assert_eq!(cpu(&state), known, "that of then");
        assert_eq!(pids(&state), [10, 30, 20]);
        assert!(!screen.contains("free"), "{screen}");
    }
    let history = state.history(0).unwrap();
    assert_eq!((history.len(), history.back(Measure::Memory, 0)), (4, None));
    assert!(history.back(Measure::Memory, 2).is_some());
    // Two seconds of CPU time in the three since the last snapshot with processes.
    busy[1].cpu += 2000;
    state.update(Event::Frame(Box::new(made(2, &busy, 5000))));
    assert!(!lines(&state).contains("as of"));
    assert_eq!(cpu(&state), [Some(66), Some(0), Some(0)]);
    press(&mut state, "j");
    state.update(key(KeyCode::Enter));
    state.update(Event::Resize(80, 40));
    let screen = lines(&state);
    let graph = screen.lines().skip_while(|line| !line.contains("SM  ")).nth(1).unwrap();
    let is_dots = |c: &char| ('\u{2801}'..='\u{28ff}').contains(c);
    let shown: Vec<char> = graph.trim_end_matches([' ', '│']).chars().rev().take(3).collect();
    // Seven percent in each snapshot, but not in the two in between.
    assert_eq!(shown.iter().map(is_dots).collect::<Vec<_>>(), [true, true, true], "{screen}");
    assert_eq!(shown[..2], ['⢀', '⡀'], "{screen}");
}

#[test]
fn cpu_share_is_since_the_previous_snapshot() {
    let mut processes = three();
    let mut state = state();
    processes[0].cpu = 1500;
    state.update(Event::Frame(Box::new(made(2, &processes, 3000))));
    let cpu = |state: &State| state.rows().map(|row| row.cpu).collect::<Vec<_>>();
    assert_eq!(cpu(&state), [Some(0), Some(75), Some(0)]);
    processes.push(Made::new(1, 40, "new", 1, "new"));
    state.update(Event::Frame(Box::new(made(2, &processes, 4000))));
    assert_eq!(cpu(&state), [Some(0), Some(0), Some(0), None], "unknown for a new process");
}

#[test]
fn every_action_has_a_key() {
    let chosen = ProcessKey { pid: Pid(10), start: Some(StartTime(1)) };
    for binding in BINDINGS {
        for stroke in binding.keys {
            let modifiers = match stroke.control {
                true => KeyModifiers::CONTROL,
                false => KeyModifiers::NONE,
            };
            let found = Scope::default().action(KeyEvent::new(stroke.code, modifiers));
            assert_eq!(found, Some(binding.action));
            let expected = match binding.action {
                Action::Quit => Effect::Quit,
                Action::Suspend => Effect::Suspend,
                Action::Repaint => Effect::Repaint,
                Action::End => Effect::Plan(1, Aim::Processes(vec![chosen])),
                Action::Environment => Effect::Ask(Inquiry::Environment(chosen)),
                Action::Leases => Effect::Ask(Inquiry::Leases),
                // Only within the environment.
                Action::Reveal => Effect::Nothing,
                _ => Effect::Draw,
            };
            let event = Event::Key(KeyEvent::new(stroke.code, modifiers));
            let mut state = state();
            press(&mut state, "j");
            assert_eq!(state.update(event), expected, "{binding:?}");
        }
    }
}

#[test]
fn cpu_share_uses_time_between_process_reads() {
    let frame_at = |cpu, taken_at, read_at| {
        let frame = made(1, &[Made { cpu, ..Made::new(0, 7, "bob", 1, "job") }], taken_at);
        Event::Frame(Box::new(frame.read_at(std::time::Duration::from_millis(read_at))))
    };
    let mut state = state();
    state.update(frame_at(1000, 9_000_000, 500));
    // The wall clock is set back, and the driver takes three seconds.
    state.update(frame_at(3000, 1_000_000, 4500));
    assert_eq!(state.rows().next().unwrap().cpu, Some(50));
}

#[test]
fn processes_left_out_by_an_option_are_counted() {
    let snapshot = made(1, &[Made::new(0, 7, "bob", 1, "job")], 1000).snapshot;
    let diagnosis = gpu_reaper::diagnose(std::slice::from_ref(&snapshot));
    let filter = gpu_report::ProcessFilter { users: vec!["nosuch".into()], ..Default::default() };
    let leases = gpu_steward::DeviceLeases::none();
    let name = |uid: u32| uid.to_string();
    let frame = gpu_top::Frame::of(snapshot, diagnosis, &leases, |_| true, &filter, &name);
    let mut state = state();
    state.update(Event::Frame(Box::new(frame)));
    let screen = lines(&state);
    assert!(screen.contains("only processes of nosuch; 1 row left out"), "{screen}");
    assert!(!screen.contains("no process uses"), "{screen}");
}

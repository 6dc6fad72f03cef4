//! The tree of processes, and actions on a part of it.

use crate::fixture::{Made, NO_GPU, key, lines, made, options, press};
use gpu_top::{Aim, Effect, Event, Options, State};
use ratatui_crossterm::crossterm::event::KeyCode;

/// A launcher with two workers, one of them on two devices; a shell above it; and a stranger.
fn launched() -> Vec<Made> {
    let below = |parent: u32, made: Made| Made { parent, ..made };
    vec![
        below(0, Made::new(NO_GPU, 1, "root", 0, "init")),
        below(1, Made::new(NO_GPU, 10, "bob", 0, "shell")),
        below(10, Made::new(NO_GPU, 20, "bob", 0, "launcher")),
        below(20, Made::new(0, 21, "bob", 300, "worker-a")),
        below(20, Made::new(1, 22, "bob", 100, "worker-b")),
        below(21, Made::new(1, 23, "bob", 900, "loader")),
        below(1, Made::new(0, 30, "eve", 50, "other")),
    ]
}

fn state(size: (u16, u16)) -> State {
    let mut state = State::new(options(), size);
    state.update(Event::Frame(Box::new(made(2, &launched(), 1000))));
    state
}

/// Returns PID and command of each row, with the lines of the tree.
fn drawn(state: &State) -> Vec<String> {
    let screen = lines(state);
    let rows = screen.lines().skip_while(|line| !line.contains("COMMAND")).skip(1);
    let rows = rows.take_while(|line| !line.is_empty());
    rows.map(|line| {
        let pid = line.split_whitespace().find(|word| word.parse::<u32>().is_ok_and(|n| n > 9));
        let from = line.char_indices().nth(46).map_or(line.len(), |(at, _)| at);
        format!("{} {}", pid.unwrap_or("-"), line[from..].trim_start_matches([' ', 'C', '-']))
    })
    .collect()
}

#[test]
fn workers_are_below_their_launcher_and_keep_their_order() {
    let mut state = state((80, 24));
    press(&mut state, "t");
    assert_eq!(
        drawn(&state),
        ["20 launcher", "21 ├─ worker-a", "23 │  └─ loader", "22 └─ worker-b", "30 other"],
        "{}",
        lines(&state)
    );
    press(&mut state, "m");
    assert_eq!(drawn(&state)[0], "20 launcher", "its loader has the most memory");
    press(&mut state, "r");
    let reversed = ["30 other", "20 launcher", "22 ├─ worker-b", "21 └─ worker-a", "23 └─ loader"];
    assert_eq!(drawn(&state), reversed, "{}", lines(&state));
    press(&mut state, "t");
    assert_eq!(state.rows().count(), 4, "the launcher uses no device");
}

#[test]
fn ancestor_without_branches_has_no_row() {
    let mut state = state((80, 24));
    press(&mut state, "t/loader");
    state.update(key(KeyCode::Enter));
    assert_eq!(drawn(&state)[0], "23 loader", "{}", lines(&state));
}

#[test]
fn filter_counts_matches_and_finds_rows_below_launcher() {
    let mut state = state((80, 24));
    press(&mut state, "t/launcher 2");
    let footer = |state: &State| lines(state).lines().last().unwrap().to_owned();
    assert!(footer(&state).ends_with(" 3 of 4 rows"), "{}", footer(&state));
    state.update(key(KeyCode::Enter));
    let below = ["20 launcher", "21 ├─ worker-a", "23 │  └─ loader", "22 └─ worker-b"];
    assert_eq!(drawn(&state), below);
    // Folded rows still match.
    press(&mut state, "gx");
    assert_eq!(drawn(&state), ["20 [+3] launcher"]);
    assert!(footer(&state).ends_with(" 3 of 4 rows"), "{}", footer(&state));
    // The shell has no row, and a launcher is on no GPU.
    for filter in ["shell", "gpu=1 other", "gpu=7 launcher"] {
        state.update(key(KeyCode::Esc));
        press(&mut state, &format!("/{filter}"));
        state.update(key(KeyCode::Enter));
        assert!(footer(&state).ends_with(" 0 of 4 rows"), "{filter}: {}", footer(&state));
    }
    state.update(key(KeyCode::Esc));
    press(&mut state, "t/launcher");
    assert!(footer(&state).ends_with(" 0 of 4 rows"), "a list has no launchers");
}

#[test]
fn process_is_folded_with_its_descendants() {
    let mut state = state((80, 24));
    press(&mut state, "tjx");
    assert_eq!(drawn(&state), ["20 [+3] launcher", "30 other"], "{}", lines(&state));
    press(&mut state, "x");
    assert_eq!(state.rows().count(), 5);
    press(&mut state, "jx");
    assert_eq!(drawn(&state)[1], "21 ├─ [+1] worker-a");
}

#[test]
fn subtree_is_tagged_whether_it_is_shown_or_not() {
    let mut state = state((80, 24));
    press(&mut state, "tjxT");
    let Effect::Plan(_, Aim::Processes(keys)) = press(&mut state, "K") else { panic!() };
    assert_eq!(keys.iter().map(|key| key.pid.0).collect::<Vec<_>>(), [21, 22, 23]);
}

#[test]
fn followed_process_keeps_selection_and_its_end_is_shown() {
    let mut state = state((100, 24));
    press(&mut state, "jF");
    assert!(lines(&state).contains("following 21"), "{}", lines(&state));
    let rest: Vec<Made> = launched().into_iter().filter(|made| made.pid != 21).collect();
    state.update(Event::Frame(Box::new(made(2, &rest, 2000))));
    assert!(lines(&state).contains("has ended: 21"), "{}", lines(&state));
    assert!(state.selected_row().is_none());
    assert_eq!(press(&mut state, "K"), Effect::Draw, "nothing is selected in its place");
    state.update(key(KeyCode::Esc));
    press(&mut state, "j");
    assert!(!lines(&state).contains("has ended"), "{}", lines(&state));
}

#[test]
fn tree_is_drawn_in_ascii_and_in_any_width() {
    for columns in [1, 20, 40, 200] {
        let mut state = State::new(Options { ascii: true, ..options() }, (columns, 30));
        state.update(Event::Frame(Box::new(made(2, &launched(), 1000))));
        press(&mut state, "t");
        let screen = lines(&state);
        let rows = screen.lines().filter(|line| line.contains("work"));
        assert!(screen.is_ascii() && rows.clone().all(|row| !row.contains('?')), "{screen}");
        assert!(columns < 40 || rows.count() == 2, "{screen}");
    }
}

//! Names that other users choose.

use crate::fixture::{Made, key, lines, made, options, press};
use gpu_top::{Event, State};
use ratatui_crossterm::crossterm::event::KeyCode;

fn shown(user: &str, command: &str, size: (u16, u16)) -> Vec<String> {
    let rows = [Made::new(0, 7, user, 100, command), Made::new(0, 8, "bob", 1, "after")];
    let mut state = State::new(options(), size);
    state.update(Event::Frame(Box::new(made(1, &rows, 1000))));
    let table = lines(&state);
    press(&mut state, "g");
    state.update(key(KeyCode::Enter));
    vec![table, lines(&state)]
}

#[test]
fn control_characters_of_a_long_name_never_reach_the_screen() {
    let escapes = "\u{1b}]0;title\u{7}\u{1b}[2J\u{9b}31m\r\n\t\u{202e}\u{200b}".repeat(180);
    assert!(escapes.len() > 4096);
    for size in [(20, 5), (80, 24), (200, 60)] {
        for screen in shown(&escapes, &escapes, size) {
            let acts = |c: &char| *c != '\n' && gpu_core::acts(*c);
            assert_eq!(screen.chars().find(acts), None, "{screen:?}");
        }
        assert!(size.0 < 80 || shown("u", &escapes, size)[0].contains("\\x1b]0;title\\x07"));
    }
}

#[test]
fn wide_and_combining_characters_stay_in_their_columns() {
    let names = [
        "漢字".repeat(40),
        format!("a{}", "\u{301}".repeat(3000)),
        "👩‍👩‍👧‍👦🏳️‍🌈".repeat(30),
        "ｗｉｄｅ e\u{301} ☂️ นํ้า".to_owned(),
    ];
    for name in names {
        for size in [(20, 5), (79, 24), (80, 24), (121, 40)] {
            for screen in shown(&name, &name, size) {
                for line in screen.lines() {
                    let width = unicode_width::UnicodeWidthStr::width(line);
                    assert!(width <= usize::from(size.0), "{width}: {line}");
                }
            }
        }
        let screen = &shown(&name, "command", (80, 24))[0];
        let column = |text: &str| {
            let line = screen.lines().find(|line| line.contains(text)).expect(screen);
            unicode_width::UnicodeWidthStr::width(&line[..line.find("MiB").unwrap()])
        };
        assert_eq!(column("command"), column("after"), "{screen}");
    }
}

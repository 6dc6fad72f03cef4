//! A text on the whole screen.

use crate::fixture::{control, options};
use gpu_report::text::Line;
use gpu_top::pages::Pages;
use gpu_top::{Effect, Event, Options, text, view_pages};
use ratatui_core::buffer::Buffer;
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use snapbox::{assert_data_eq, str};

fn drawn(pages: &Pages) -> String {
    let mut buffer = Buffer::empty(pages.area());
    view_pages(pages, pages.area(), &mut buffer);
    text(&buffer)
}

/// A text of 20 lines that names the width.
fn numbered(width: usize) -> (Line, Vec<Line>) {
    let lines = (0..20).map(|number| Line::new().plain(format!("line {number}")));
    (Line::new().plain(format!("20 lines in {width}")), lines.collect())
}

fn press(pages: &mut Pages, code: KeyCode) -> Effect {
    pages.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn text_scrolls_within_its_lines() {
    let mut pages = Pages::new(options(), (60, 7));
    pages.refresh(numbered);
    assert_data_eq!(
        drawn(&pages),
        str![[r#"
20 lines in 60
line 0
line 1
line 2
line 3
line 4
Down Scroll  q Quit  z Pause                         15 more

"#]]
    );
    let first = |pages: &Pages| drawn(pages).lines().nth(1).unwrap().to_owned();
    for (code, line) in [
        (KeyCode::Up, "line 0"),
        (KeyCode::Char('j'), "line 1"),
        (KeyCode::Char(' '), "line 6"),
        (KeyCode::PageUp, "line 1"),
        (KeyCode::End, "line 15"),
        (KeyCode::Down, "line 15"),
        (KeyCode::Char('k'), "line 14"),
        (KeyCode::Home, "line 0"),
        (KeyCode::Char('G'), "line 15"),
    ] {
        assert_eq!(press(&mut pages, code), Effect::Draw);
        assert_eq!(first(&pages), line, "{code:?}");
    }
    // Fewer lines, or more of them on the screen, leave none empty.
    pages.refresh(|width| (Line::new(), numbered(width).1.split_off(12)));
    assert_eq!(first(&pages), "line 15");
    pages.resize((60, 40));
    assert_eq!(first(&pages), "line 12");
}

#[test]
fn pause_keeps_the_text() {
    let mut pages = Pages::new(options(), (40, 5));
    pages.refresh(numbered);
    press(&mut pages, KeyCode::Char('z'));
    pages.refresh(|_| (Line::new().plain("other"), Vec::new()));
    let screen = drawn(&pages);
    assert!(screen.starts_with("20 lines in 40") && screen.contains("  paused\n"), "{screen}");
    press(&mut pages, KeyCode::Char('z'));
    pages.refresh(|_| (Line::new().plain("other"), Vec::new()));
    assert_eq!(drawn(&pages), "other\n\n\n\nDown Scroll  q Quit  z Pause\n");
}

#[test]
fn keys_without_a_meaning_here_do_nothing() {
    let mut pages = Pages::new(options(), (40, 5));
    let mut effect = |code| press(&mut pages, code);
    for code in ['K', 'y', 'e', 't', '/', '?', 'i'].map(KeyCode::Char) {
        assert_eq!(effect(code), Effect::Nothing, "{code:?}");
    }
    assert_eq!(effect(KeyCode::Esc), Effect::Nothing);
    assert_eq!(effect(KeyCode::Char('q')), Effect::Quit);
    for (letter, expected) in [('c', Effect::Quit), ('z', Effect::Suspend), ('l', Effect::Repaint)]
    {
        let Event::Key(key) = control(letter) else { panic!() };
        assert_eq!(pages.press(key), expected, "{letter}");
    }
}

#[test]
fn every_size_is_drawn_and_hostile_text_stays_on_the_screen() {
    let evil = "\u{1b}[2J\u{202e}训".repeat(99);
    for (columns, rows) in [(1, 1), (1, 2), (2, 3), (9, 4), (65_535, 1), (0, 0)] {
        let mut pages = Pages::new(Options { ascii: columns == 9, ..options() }, (columns, rows));
        pages.refresh(|_| (Line::new().accent(&evil), vec![Line::new().plain(&evil); 9]));
        press(&mut pages, KeyCode::End);
        let screen = drawn(&pages);
        assert!(!screen.contains(['\u{1b}', '\u{202e}']), "{columns} {rows}: {screen}");
        assert_eq!(screen.lines().count(), usize::from(pages.area().height));
        assert!(columns != 9 || screen.is_ascii(), "{screen}");
    }
}

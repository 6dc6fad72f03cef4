//! Random events and sizes: no panics, and the display stays consistent.

use crate::fixture::{Made, made, options};
use gpu_report::text::Line;
use gpu_report::wording::reap::Paragraph;
use gpu_top::ending::{News, Shown};
use gpu_top::{Effect, Event, Options, State, text, view};
use proptest::prelude::*;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_crossterm::crossterm::event::{
    KeyCode, KeyEvent, KeyModifiers, MouseButton, MouseEvent, MouseEventKind,
};
use std::time::Duration;

fn code() -> impl Strategy<Value = KeyCode> {
    let named = [
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Backspace,
        KeyCode::Up,
        KeyCode::Down,
        KeyCode::PageUp,
        KeyCode::PageDown,
        KeyCode::Home,
        KeyCode::End,
        KeyCode::F(1),
        KeyCode::F(4),
        KeyCode::F(6),
        KeyCode::F(9),
        KeyCode::Tab,
        KeyCode::Null,
    ];
    let letters: Vec<char> = "?h/s<>rzjkgGdmpuacbKKKyyyqU ".chars().collect();
    prop_oneof![
        proptest::sample::select(named.to_vec()),
        proptest::sample::select(letters).prop_map(KeyCode::Char),
        any::<char>().prop_map(KeyCode::Char),
    ]
}

fn process() -> impl Strategy<Value = Made> {
    let names = prop_oneof!["[a-c]{1,3}", "\\PC{0,12}", any::<String>()];
    (0..9u32, 1..60u32, names.clone(), any::<u64>(), names).prop_map(
        |(gpu, pid, user, memory, command)| Made {
            memory: memory >> (gpu * 7),
            ..Made::new(gpu, pid, &user, 0, &command)
        },
    )
}

fn size() -> impl Strategy<Value = (u16, u16)> {
    prop_oneof![
        (0..30u16, 0..12u16),
        (60..130u16, 10..50u16),
        (any::<u16>(), 0..3u16),
        Just((u16::MAX, 3)),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let frame = (0..9u32, proptest::collection::vec(process(), 0..20), any::<u64>());
    let kind = proptest::sample::select(vec![
        MouseEventKind::Down(MouseButton::Left),
        MouseEventKind::ScrollDown,
        MouseEventKind::ScrollUp,
        MouseEventKind::Moved,
    ]);
    prop_oneof![
        8 => (code(), any::<bool>()).prop_map(|(code, control)| {
            let modifiers = if control { KeyModifiers::CONTROL } else { KeyModifiers::NONE };
            Event::Key(KeyEvent::new(code, modifiers))
        }),
        3 => frame.prop_map(|(gpus, processes, at)| {
            Event::Frame(Box::new(made(gpus, &processes, at)))
        }),
        2 => (kind, 0..130u16, 0..50u16).prop_map(|(kind, column, row)| {
            Event::Mouse(MouseEvent { kind, column, row, modifiers: KeyModifiers::NONE })
        }),
        1 => size().prop_map(|(columns, rows)| Event::Resize(columns, rows)),
        1 => any::<String>().prop_map(Event::Paste),
        1 => any::<u32>().prop_map(|since| Event::Tick(Duration::from_secs(since.into()))),
        1 => any::<String>().prop_map(|what| Event::Stalled {
            what: gpu_core::clean(&what).into_owned(),
            since: Duration::ZERO,
        }),
    ]
}

/// News of an ending, as if sent by a thread.
fn news() -> impl Strategy<Value = Event> {
    let line = |text: String| Line::new().plain(text);
    let paragraphs =
        proptest::collection::vec(any::<String>(), 0..30).prop_map(move |paragraphs| {
            let wrapped = |text: &String| Paragraph { head: Line::new(), text: text.clone() };
            paragraphs.iter().map(wrapped).collect::<Vec<_>>()
        });
    let planned = (0..4u64, paragraphs.clone(), 0..3usize, any::<bool>()).prop_map(
        |(number, text, targets, refused)| {
            let obstacle = refused.then(|| "not here".to_owned());
            News::Planned(number, Ok(Shown { text, targets, obstacle }))
        },
    );
    prop_oneof![
        4 => planned,
        1 => any::<String>().prop_map(|why| News::Planned(1, Err(why))),
        1 => any::<String>().prop_map(move |text| News::Step(line(text))),
        1 => paragraphs.prop_map(|paragraphs| News::Over(Ok(paragraphs))),
        1 => any::<String>().prop_map(|why| News::Over(Err(why))),
    ]
    .prop_map(Event::Ending)
}

/// A key that the dialog reacts to, or one that it ignores.
fn dialog_key() -> impl Strategy<Value = Event> {
    let codes = ['K', 'y', 'y', 'j', ' ', 'q', 'Y'].map(KeyCode::Char);
    let codes = [&codes[..], &[KeyCode::Esc, KeyCode::Enter, KeyCode::F(9)]].concat();
    proptest::sample::select(codes)
        .prop_map(|code| Event::Key(KeyEvent::new(code, KeyModifiers::NONE)))
}

fn is_confirmation(event: &Event) -> bool {
    matches!(event, Event::Key(key) if key.code == KeyCode::Char('y') && key.modifiers.is_empty())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn no_events_panic_and_the_selected_row_is_shown(
        size in size(),
        events in proptest::collection::vec(event(), 1..40),
    ) {
        let mut state = State::new(options(), size);
        for event in events {
            state.update(event);
            let buffer = state.drawn();
            for cell in buffer.content() {
                prop_assert!(!cell.symbol().chars().any(gpu_core::acts), "{:?}", cell.symbol());
            }
        }
    }

    #[test]
    fn only_confirming_the_shown_plan_ends_processes(
        read_only in proptest::bool::weighted(0.2),
        events in proptest::collection::vec(prop_oneof![1 => event(), 3 => dialog_key(), 2 => news()], 1..60),
    ) {
        let mut state = State::new(Options { can_end: !read_only, ..options() }, (80, 24));
        let rows = [Made::new(0, 7, "u", 1, "c"), Made::new(0, 8, "u", 1, "c")];
        state.update(Event::Frame(Box::new(made(1, &rows, 1))));
        let mut asked = 0;
        for event in events {
            let prompt = text(&state.drawn());
            let confirmed = is_confirmation(&event);
            match state.update(event) {
                Effect::Plan(number, aim) => {
                    prop_assert!(!read_only && number > asked, "{aim:?}");
                    asked = number;
                }
                Effect::Execute(number) => {
                    prop_assert!(confirmed && number == asked, "{number}, not {asked}");
                    prop_assert!(prompt.contains("y: end "), "{prompt}");
                }
                Effect::Stop => prop_assert!(prompt.contains("q: send no further signal")),
                _ => {}
            }
        }
    }

    #[test]
    fn view_draws_inside_any_area_of_any_buffer(
        size in (0..140u16, 0..50u16),
        x in 0..150u16, y in 0..60u16, width in any::<u16>(), height in any::<u16>(),
        processes in proptest::collection::vec(process(), 0..20),
        keys in proptest::collection::vec(code(), 0..4),
    ) {
        let mut state = State::new(options(), (80, 24));
        state.update(Event::Frame(Box::new(made(6, &processes, 1))));
        for code in keys {
            state.update(Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
        }
        let mut buffer = Buffer::empty(Rect::new(3, 2, size.0, size.1));
        view(&state, Rect::new(x, y, width, height), &mut buffer);
    }
}

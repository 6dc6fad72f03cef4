//! The boxes over the table: the help, an environment and a plan.

use super::{boxed, watched};
use crate::fixture::{key, lines, press};
use gpu_core::Environment;
use gpu_report::text::Line;
use gpu_report::wording::reap::Paragraph;
use gpu_top::ending::{News, Shown};
use gpu_top::inquiry::Answer;
use gpu_top::rows::Subject;
use gpu_top::{Event, State};
use ratatui_crossterm::crossterm::event::KeyCode;
use snapbox::{assert_data_eq, str};

#[test]
fn help_lists_each_key_and_scrolls() {
    let mut state = watched((72, 20));
    press(&mut state, "?");
    assert_data_eq!(
        boxed(&state),
        str![[r#"
┌─ keys ───────────────────────────────────────────────────────────────┐
│ q F10 ^C     quit                                                    │
│ ? h F1       this help                                               │
│ / F4         filter the rows                                         │
│ s F6 >       sort by the next column                                 │
│ <            sort by the previous column                             │
│ r            reverse the order                                       │
│ Enter        details of the selected row                             │
│ e            environment of the selected process                     │
│ v            show values in it that may be secrets                   │
│ l            leases and waiting claims                               │
│ t F5         process tree, with connecting parents                   │
│ x            collapse or expand a process of the tree                │
│ F            follow the process: keep it selected                    │
│ T            tag the process and its descendants                     │
│ Space        tag or untag the process                                │
│ U            remove all tags                                         │
└──────────────────────────────────────────────── 29 more lines below ─┘
Esc Close  Down Scroll  q Quit  ? Help  z Pause

"#]]
    );
    state.update(key(KeyCode::End));
    assert_data_eq!(
        boxed(&state),
        str![[r#"
┌─ keys ───────────────────────────────────────────────────────────────┐
│ u            sort by user                                            │
│ a            sort by age                                             │
│ c            sort by command                                         │
│ b            graphs of braille, blocks or ASCII                      │
│ i            second line of each GPU, and load of the host           │
│ ^L           redraw the screen                                       │
│ ^Z           suspend until fg                                        │
│                                                                      │
│                                                                      │
│ In a box like this, Space is PgDn.                                   │
│ A filter is a list of words that must all match: user=NAME (or its   │
│ beginning), gpu=0,2-3, or a part of the PID, the user, the note, the │
│ job or the command. While you type it, ^U clears it.                 │
│ Click a title to sort; click a row to select it.                     │
│ In a narrow list of GPUs, ! marks a finding and L a lease.           │
│ NOTE is the finding of gpuws doctor about a process, or `leased`.    │
└──────────────────────────────────────────────────────────────────────┘
Esc Close  Down Scroll  q Quit  ? Help  z Pause

"#]]
    );
}

#[test]
fn small_screen_has_a_box_without_a_frame() {
    let mut state = watched((24, 9));
    press(&mut state, "?");
    assert_data_eq!(
        lines(&state),
        str![[r#"
made            00:00:09
q F10 ^C     quit
? h F1       this help
/ F4         filter the
rows
s F6 >       sort by the
next column
<            sort by the
Esc Close  Down Scroll

"#]]
    );
    state.update(Event::Resize(25, 9));
    assert_data_eq!(
        lines(&state),
        str![[r#"
made · driver 1  00:00:09
┌─ keys ────────────────┐
│ q F10 ^C     quit     │
│ ? h F1       this     │
│ help                  │
│ / F4         filter   │
│ the rows              │
└─ 97 more lines below ─┘
Esc Close  Down Scroll

"#]]
    );
    state.update(Event::Resize(25, 6));
    assert_data_eq!(
        lines(&state),
        str![[r#"
made · driver 1  00:00:09
q F10 ^C     quit
? h F1       this help
/ F4         filter the
rows
Esc Close  Down Scroll

"#]]
    );
    state.update(Event::Resize(3, 4));
    assert_data_eq!(
        lines(&state),
        str![[r#"
  …
q
F10


"#]]
    );
}

#[test]
fn environment_breaks_long_values_and_counts_hidden_ones() {
    let shown = |variables: &[(&str, &str)], is_cut, keys| {
        let mut state = watched((50, 20));
        press(&mut state, "je");
        let Subject::Process(key) = state.selected().unwrap().subject else { unreachable!() };
        let variables =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let environment = Environment { variables: variables.collect(), is_cut };
        state.update(Event::Answer(Box::new(Answer::Environment(key, Ok(environment)))));
        press(&mut state, keys);
        boxed(&state)
    };
    let value = "/opt/训练/".repeat(12);
    let variables =
        [("A_KEY", "x"), ("B_TOKEN", "y"), ("PATH", &*value), ("WIDTH", &"9".repeat(40))];
    assert_data_eq!(
        shown(&variables, false, "z"),
        str![[r#"
┌─ environment ──────────────────────────────────┐
│ 71 python train.py --epochs 90                 │
│ A_KEY=(hidden)                                 │
│ B_TOKEN=(hidden)                               │
│ PATH=/opt/训练//opt/训练//opt/训练//opt/训练// │
│   opt/训练//opt/训练//opt/训练//opt/训练//opt/ │
│   训练//opt/训练//opt/训练//opt/训练/          │
│ WIDTH=9999999999999999999999999999999999999999 │
│ 2 values that may be secret: v shows them      │
└────────────────────────────────────────────────┘
Esc Close  Down Scroll  q Quit  ? Help

"#]]
    );
    assert_data_eq!(
        shown(&variables[..1], true, "v"),
        str![[r#"
┌─ environment ──────────────────────────────────┐
│ 71 python train.py --epochs 90                 │
│ A_KEY=x                                        │
│ the rest was not read                          │
└────────────────────────────────────────────────┘
Esc Close  Down Scroll  q Quit  ? Help

"#]]
    );
    assert_data_eq!(
        shown(&[], false, "z"),
        str![[r#"
┌─ environment ──────────────────────────────────┐
│ 71 python train.py --epochs 90                 │
│ no variables                                   │
└────────────────────────────────────────────────┘
Esc Close  Down Scroll  q Quit  ? Help

"#]]
    );
}

fn proposed(size: (u16, u16), lines_of_plan: usize) -> State {
    let mut state = watched(size);
    press(&mut state, "jK");
    let head = Line::new().accent("SIGTERM").plain("  ");
    let one = Paragraph {
        head,
        text: "4194300 jupyter of bob, which has run for three days and is idle".to_owned(),
    };
    let long = Paragraph {
        head: Line::new().plain("nothing else on GPU 0: "),
        text: "the other holders have leases of their own".to_owned(),
    };
    let text = (0..lines_of_plan).map(|_| one.clone()).chain([long]).collect();
    state.update(Event::Ending(News::Planned(
        1,
        Ok(Shown { text, targets: lines_of_plan, obstacle: None }),
    )));
    state
}

#[test]
fn plan_is_confirmed_only_on_a_screen_with_room_to_read_it() {
    assert_data_eq!(
        boxed(&proposed((60, 20), 2)),
        str![[r#"
┌─ end processes ──────────────────────────────────────────┐
│ SIGTERM  4194300 jupyter of bob, which has run for three │
│          days and is idle                                │
│ SIGTERM  4194300 jupyter of bob, which has run for three │
│          days and is idle                                │
│ nothing else on GPU 0: the other holders have leases of  │
│            their own                                     │
│                                                          │
│ y: end 2 processes   Esc: cancel                         │
└──────────────────────────────────────────────────────────┘
y End  Esc Leave  Down Scroll  q Quit

"#]]
    );
    assert_data_eq!(
        boxed(&proposed((60, 12), 9)),
        str![[r#"
┌─ end processes ──────────────────────────────────────────┐
│ SIGTERM  4194300 jupyter of bob, which has run for three │
│          days and is idle                                │
│ SIGTERM  4194300 jupyter of bob, which has run for three │
│          days and is idle                                │
│ SIGTERM  4194300 jupyter of bob, which has run for three │
│          days and is idle                                │
│                                                          │
│ PgDn: show the rest of the plan   Esc: cancel            │
└──────────────────────────────────── 14 more lines below ─┘
Esc Leave  Down Scroll  q Quit

"#]]
    );
    for (size, confirms) in [((48, 8), true), ((47, 8), false), ((48, 7), false)] {
        let mut state = proposed(size, 1);
        while state.update(key(KeyCode::PageDown)) != gpu_top::Effect::Nothing
            && lines(&state).contains("show the rest")
        {}
        let screen = lines(&state);
        assert_eq!(screen.contains("too small to confirm"), !confirms, "{screen}");
        let executed = gpu_top::Effect::Execute(1);
        assert_eq!(press(&mut state, "y") == executed, confirms, "{size:?}\n{screen}");
    }
}

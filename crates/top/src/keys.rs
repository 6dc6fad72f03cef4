//! The keys, as a table. The help and the footer are generated from it.

use crate::overlay::Overlay;
use crate::replay::Control;
use crate::rows::Column;
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// The effect of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Ends the program.
    Quit,
    /// Opens or closes the help.
    Help,
    /// Moves the selection one row up.
    Up,
    /// Moves the selection one row down.
    Down,
    /// Selects the first row.
    First,
    /// Selects the last row.
    Last,
    /// Moves the selection one page up.
    PageUp,
    /// Moves the selection one page down.
    PageDown,
    /// Opens or closes the details of the selected row.
    Details,
    /// Opens the dialog that ends processes.
    End,
    /// Confirms the plan that the dialog shows.
    Confirm,
    /// Tags or untags the selected process.
    Tag,
    /// Removes all tags.
    Untag,
    /// Tags the selected process and those below it in the tree.
    TagTree,
    /// Shows the rows as a tree of processes, or as a list.
    Tree,
    /// Hides or shows the rows below the selected process in the tree.
    Fold,
    /// Keeps the selection on the process, even after it ends.
    Follow,
    /// Opens or closes the environment of the selected process.
    Environment,
    /// Shows or hides the values in the environment that may be secrets.
    Reveal,
    /// Opens or closes the leases and waiting claims.
    Leases,
    /// Controls the playback of a recording.
    Play(Move),
    /// Edits the time of the recording to show.
    Timecode,
    /// Edits the filter.
    Filter,
    /// Sorts by the next column.
    NextColumn,
    /// Sorts by the previous column.
    PreviousColumn,
    /// Reverses the order.
    Reverse,
    /// Sorts by a column.
    SortBy(Column),
    /// Stops or resumes the display of new snapshots.
    Pause,
    /// Shows or hides the second line of each device and the load of the host.
    More,
    /// Cycles through the characters of the graphs.
    Markers,
    /// Closes the help or the details, otherwise clears the filter, otherwise the selection.
    Clear,
    /// Draws the whole screen again.
    Repaint,
    /// Stops the program until `fg`.
    Suspend,
}

/// A command of a key to the player of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Move {
    /// 10 seconds back.
    Back,
    /// 10 seconds forward.
    Forward,
    /// One frame back.
    StepBack,
    /// One frame forward.
    StepForward,
    /// To the first frame.
    First,
    /// To the last frame.
    Last,
    /// A higher speed.
    Faster,
    /// A lower speed.
    Slower,
}

impl Move {
    /// Returns the command to the player.
    pub(crate) fn control(self) -> Control {
        match self {
            Move::Back => Control::By(-10),
            Move::Forward => Control::By(10),
            Move::StepBack => Control::Step(-1),
            Move::StepForward => Control::Step(1),
            Move::First => Control::First,
            Move::Last => Control::Last,
            Move::Faster => Control::Faster,
            Move::Slower => Control::Slower,
        }
    }
}

/// A key, with or without Ctrl.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Stroke {
    /// The key.
    pub code: KeyCode,
    /// It is pressed together with Ctrl.
    pub control: bool,
}

impl Stroke {
    const fn key(code: KeyCode) -> Self {
        Stroke { code, control: false }
    }

    const fn char(letter: char) -> Self {
        Stroke::key(KeyCode::Char(letter))
    }

    const fn control(letter: char) -> Self {
        Stroke { code: KeyCode::Char(letter), control: true }
    }

    /// Returns the pressed key; `None` with the Alt key, which has no meaning here.
    pub fn of(key: KeyEvent) -> Option<Self> {
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        let other = key.modifiers.difference(KeyModifiers::CONTROL | KeyModifiers::SHIFT);
        other.is_empty().then_some(Stroke { code: key.code, control })
    }

    /// Returns its name: `q`, `^C`, `F10`, `PgUp`.
    pub fn name(self) -> String {
        match self.code {
            KeyCode::Char(letter) if self.control => format!("^{}", letter.to_ascii_uppercase()),
            KeyCode::Char(' ') => "Space".to_owned(),
            KeyCode::Char(letter) => letter.to_string(),
            KeyCode::F(number) => format!("F{number}"),
            KeyCode::PageUp => "PgUp".to_owned(),
            KeyCode::PageDown => "PgDn".to_owned(),
            other => format!("{other:?}"),
        }
    }
}

/// An action, its keys and its description.
#[derive(Clone, Copy, Debug)]
pub struct Binding {
    /// The action.
    pub action: Action,
    /// The keys.
    pub keys: &'static [Stroke],
    /// The description in the help.
    pub help: &'static str,
    /// The word in the footer; empty for none.
    pub word: &'static str,
}

const fn bind(
    action: Action,
    keys: &'static [Stroke],
    help: &'static str,
    word: &'static str,
) -> Binding {
    Binding { action, keys, help, word }
}

use KeyCode::{Down, End, Enter, Esc, F, Home, Left, PageDown, PageUp, Right, Up};

/// Every key, in the order of the help and of the footer.
pub const BINDINGS: &[Binding] = &[
    bind(
        Action::Quit,
        &[Stroke::char('q'), Stroke::key(F(10)), Stroke::control('c')],
        "quit",
        "Quit",
    ),
    bind(
        Action::Help,
        &[Stroke::char('?'), Stroke::char('h'), Stroke::key(F(1))],
        "this help",
        "Help",
    ),
    bind(Action::Filter, &[Stroke::char('/'), Stroke::key(F(4))], "filter the rows", "Filter"),
    bind(
        Action::NextColumn,
        &[Stroke::char('s'), Stroke::key(F(6)), Stroke::char('>')],
        "sort by the next column",
        "Sort",
    ),
    bind(Action::PreviousColumn, &[Stroke::char('<')], "sort by the previous column", ""),
    bind(Action::Reverse, &[Stroke::char('r')], "reverse the order", "Reverse"),
    bind(Action::Details, &[Stroke::key(Enter)], "details of the selected row", "Details"),
    bind(Action::Environment, &[Stroke::char('e')], "environment of the selected process", ""),
    bind(Action::Reveal, &[Stroke::char('v')], "show values in it that may be secrets", ""),
    bind(Action::Leases, &[Stroke::char('l')], "leases and waiting claims", ""),
    bind(
        Action::Tree,
        &[Stroke::char('t'), Stroke::key(F(5))],
        "process tree, with connecting parents",
        "Tree",
    ),
    bind(Action::Fold, &[Stroke::char('x')], "collapse or expand a process of the tree", ""),
    bind(Action::Follow, &[Stroke::char('F')], "follow the process: keep it selected", ""),
    bind(Action::TagTree, &[Stroke::char('T')], "tag the process and its descendants", ""),
    bind(Action::Tag, &[Stroke::char(' ')], "tag or untag the process", ""),
    bind(Action::Untag, &[Stroke::char('U')], "remove all tags", ""),
    bind(
        Action::End,
        &[Stroke::char('K'), Stroke::key(F(9))],
        "end the tagged processes or the selected one: shows the plan first",
        "End",
    ),
    bind(Action::Pause, &[Stroke::char('z')], "pause and resume", "Pause"),
    bind(
        Action::Clear,
        &[Stroke::key(Esc)],
        "clear the filter or else the selection; close a box",
        "Clear",
    ),
    bind(Action::Up, &[Stroke::key(Up), Stroke::char('k')], "row up", ""),
    bind(Action::Down, &[Stroke::key(Down), Stroke::char('j')], "row down", ""),
    bind(Action::PageUp, &[Stroke::key(PageUp)], "page up", ""),
    bind(Action::PageDown, &[Stroke::key(PageDown)], "page down", ""),
    bind(Action::First, &[Stroke::key(Home), Stroke::char('g')], "first row", ""),
    bind(Action::Last, &[Stroke::key(End), Stroke::char('G')], "last row", ""),
    bind(Action::SortBy(Column::Gpu), &[Stroke::char('d')], "sort by GPU (device)", ""),
    bind(Action::SortBy(Column::Memory), &[Stroke::char('m')], "sort by GPU memory", ""),
    bind(Action::SortBy(Column::Pid), &[Stroke::char('p')], "sort by PID", ""),
    bind(Action::SortBy(Column::User), &[Stroke::char('u')], "sort by user", ""),
    bind(Action::SortBy(Column::Age), &[Stroke::char('a')], "sort by age", ""),
    bind(Action::SortBy(Column::Command), &[Stroke::char('c')], "sort by command", ""),
    bind(Action::Markers, &[Stroke::char('b')], "graphs of braille, blocks or ASCII", ""),
    bind(Action::More, &[Stroke::char('i')], "second line of each GPU, and load of the host", ""),
    bind(Action::Repaint, &[Stroke::control('l')], "redraw the screen", ""),
    bind(Action::Suspend, &[Stroke::control('z')], "suspend until fg", ""),
];

/// The keys in a box over the table that differ from those of [`BINDINGS`] and take precedence over
/// them.
pub const IN_BOX: &[Binding] = &[
    bind(Action::Clear, &[Stroke::key(Esc)], "close the box", "Close"),
    bind(Action::Down, &[Stroke::key(Down), Stroke::char('j')], "line down", "Scroll"),
    bind(Action::PageDown, &[Stroke::char(' '), Stroke::key(PageDown)], "page down", ""),
];

/// The keys of the dialog that ends processes. The keys that move, quit, stop and draw work there,
/// too.
pub const IN_DIALOG: &[Binding] = &[
    bind(Action::Confirm, &[Stroke::char('y')], "end the processes of the plan", "End"),
    bind(Action::Clear, &[Stroke::key(Esc)], "leave the dialog", "Leave"),
    bind(Action::Down, &[Stroke::key(Down), Stroke::char('j')], "line down", "Scroll"),
];

/// The keys that exist only in the view of a recording. They take precedence over those of
/// [`BINDINGS`].
pub const IN_REPLAY: &[Binding] = &[
    bind(Action::Play(Move::Back), &[Stroke::key(Left)], "10 s back", ""),
    bind(Action::Play(Move::Forward), &[Stroke::key(Right)], "10 s forward", "+10 s"),
    bind(Action::Play(Move::StepBack), &[Stroke::char('[')], "one frame back", ""),
    bind(Action::Play(Move::StepForward), &[Stroke::char(']')], "one frame forward", "Step"),
    bind(Action::Play(Move::First), &[Stroke::char('{')], "to the first frame", ""),
    bind(Action::Play(Move::Last), &[Stroke::char('}')], "to the last frame", ""),
    bind(Action::Play(Move::Faster), &[Stroke::char('+'), Stroke::char('=')], "faster", "Faster"),
    bind(Action::Play(Move::Slower), &[Stroke::char('-')], "slower", ""),
    bind(Action::Timecode, &[Stroke::char('g')], "go to a time: 10:00, -5m from the end", "Time"),
];

/// Returns whether an action is possible with this box over the table: actions that move its text,
/// concern its subject, or concern the whole program. Actions on the table are not, because the
/// table is covered.
pub fn acts_in(overlay: Overlay, action: Action) -> bool {
    use Action::{
        Clear, Confirm, Details, Down, End, Environment, First, Help, Last, Leases, Markers,
        PageDown, PageUp, Pause, Play, Quit, Repaint, Reveal, Suspend, Timecode, Up,
    };
    let everywhere = match action {
        Clear | Up | Down | PageUp | PageDown | First | Last | Quit | Suspend | Repaint => true,
        Help | Pause | Play(_) | Timecode => overlay != Overlay::Ending,
        _ => false,
    };
    let own: &[Action] = match overlay {
        Overlay::Help => &[],
        Overlay::Details => &[Details, Environment, End, Markers],
        Overlay::Environment => &[Details, Environment, End, Reveal],
        Overlay::Leases => &[Leases],
        Overlay::Ending => &[Confirm],
    };
    everywhere || own.contains(&action)
}

/// The context in which a key is pressed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Scope {
    /// The box over the table.
    pub overlay: Option<Overlay>,
    /// A recording is shown.
    pub replays: bool,
}

impl Scope {
    /// Returns the bindings that apply, in order of precedence.
    pub fn bindings(self) -> impl Iterator<Item = &'static Binding> {
        let own = match self.overlay {
            None => &[],
            Some(Overlay::Ending) => IN_DIALOG,
            Some(_) => IN_BOX,
        };
        let played = if self.replays { IN_REPLAY } else { &[] };
        let acts = move |binding: &&Binding| {
            self.overlay.is_none_or(|overlay| acts_in(overlay, binding.action))
        };
        own.iter().chain(played).chain(BINDINGS).filter(acts)
    }

    /// Returns the binding of a key.
    pub fn binding(self, key: Stroke) -> Option<&'static Binding> {
        self.bindings().find(|binding| binding.keys.contains(&key))
    }

    /// Returns the action of a key.
    pub fn action(self, key: KeyEvent) -> Option<Action> {
        Some(self.binding(Stroke::of(key)?)?.action)
    }

    /// Returns the keys of a binding that no other binding takes precedence over.
    pub fn keys(self, binding: &'static Binding) -> impl Iterator<Item = Stroke> {
        let is_its = move |key: &Stroke| {
            self.binding(*key).is_some_and(|found| std::ptr::eq(found, binding))
        };
        binding.keys.iter().copied().filter(is_its)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_has_two_actions_and_no_action_is_listed_twice() {
        let strokes: Vec<Stroke> =
            BINDINGS.iter().flat_map(|binding| binding.keys).copied().collect();
        for (at, stroke) in strokes.iter().enumerate() {
            assert!(!strokes[..at].contains(stroke), "{}", stroke.name());
        }
        for (at, binding) in BINDINGS.iter().enumerate() {
            let before = &BINDINGS[..at];
            assert!(before.iter().all(|other| other.action != binding.action), "{binding:?}");
        }
    }

    #[test]
    fn every_function_key_has_an_alternative() {
        for binding in BINDINGS {
            let is_function = |key: &Stroke| matches!(key.code, F(_));
            assert!(!binding.keys.iter().all(is_function), "{binding:?}");
        }
    }

    #[test]
    fn escape_never_quits() {
        let action = |key| Scope::default().action(key);
        assert_eq!(action(KeyEvent::new(Esc, KeyModifiers::NONE)), Some(Action::Clear));
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(action(control_c), Some(Action::Quit));
        let alt_q = KeyEvent::new(KeyCode::Char('q'), KeyModifiers::ALT);
        assert_eq!(action(alt_q), None);
        let capital = KeyEvent::new(KeyCode::Char('G'), KeyModifiers::SHIFT);
        assert_eq!(action(capital), Some(Action::Last));
    }
}

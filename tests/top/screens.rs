//! Whole screens of simulated machines, as golden files, and the styles of some cells.

use gpu_core::Clock;
use gpu_reaper::{Guard, Request};
use gpu_report::ProcessFilter;
use gpu_sim::Simulation;
use gpu_steward::DeviceLeases;
use gpu_top::ending::{Aim, Ender, News, Proposal, Shown};
use gpu_top::keys::BINDINGS;
use gpu_top::rows::Subject;
use gpu_top::{Attention, Effect, Event, Frame, Options, Overlay, State, Theme, text};
use ratatui_core::buffer::{Buffer, Cell};
use ratatui_core::style::{Color, Modifier};
use ratatui_crossterm::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use snapbox::Data;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

fn options() -> Options {
    Options { sim: "--sim NAME ".to_owned(), can_end: true, can_ask: true, ..Options::default() }
}

/// Takes a snapshot of a machine, as `gpuws top` does.
fn take_frame(machine: &Simulation) -> Frame {
    let mut observation = gpu_top::frame::observation();
    observation.groups = observation.groups.and(gpu_top::more::groups());
    let mut snapshot = gpu_core::observe_in_detail(machine, machine, machine, observation);
    let diagnosis = gpu_reaper::diagnose_outlines(&mut snapshot, machine);
    let leased = DeviceLeases::none();
    let filter = ProcessFilter::default();
    let name = |uid| format!("user {uid}");
    Frame::of(snapshot, diagnosis, &leased, |_| true, &filter, &name)
}

/// Returns the state after a number of snapshots of a machine, one a second.
pub(crate) fn watched(name: &str, frames: usize, size: (u16, u16)) -> State {
    let machine = Simulation::named(Path::new(name)).unwrap();
    let mut state = State::new(options(), size);
    for _ in 0..frames {
        assert_eq!(state.update(Event::Frame(Box::new(take_frame(&machine)))), Effect::Draw);
        machine.sleep(Duration::from_secs(1));
    }
    state
}

fn lines(state: &State) -> String {
    text(&state.drawn())
}

pub(crate) fn key(code: KeyCode) -> Event {
    Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
}

fn press(state: &mut State, keys: &str) {
    for letter in keys.chars() {
        state.update(key(KeyCode::Char(letter)));
    }
}

#[test]
fn listed_but_ended_process_shows_its_finding_as_note() {
    let screen = lines(&watched("listed-but-gone", 2, (80, 24)));
    let row = screen.lines().find(|line| line.contains(" 31337 ")).unwrap();
    assert!(row.contains(" gone "), "{screen}");
}

const SIZES: [(u16, u16); 4] = [(20, 5), (80, 24), (120, 40), (200, 60)];

fn hold(name: &str, what: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("top/golden").join(name);
    snapbox::assert_data_eq!(what, Data::read_from(&path, None).raw());
}

#[test]
fn machines_match_golden_screens_at_every_size() {
    for machine in ["p100-ghost", "labbox", "mig-a100", "crowd:8x32", "crowd:64x32"] {
        let at = |(columns, rows)| {
            let state = watched(machine, 30, (columns, rows));
            format!("{columns}x{rows}\n{}", lines(&state))
        };
        let screens = SIZES.map(at).join("\n");
        hold(&format!("{}.txt", machine.replace(':', "-")), &screens);
    }
}

#[test]
fn overlays_match_golden_screens() {
    let mut state = watched("labbox", 3, (80, 24));
    press(&mut state, "?");
    let help = lines(&state);
    press(&mut state, "?G");
    state.update(key(KeyCode::Enter));
    let details = lines(&state);
    let mut state = watched("p100-ghost", 3, (80, 24));
    state.update(key(KeyCode::Enter));
    let unlisted = lines(&state);
    hold("overlays.txt", &[help, details, unlisted].join("\n"));
}

/// Plans as `gpuws top` does, but executes nothing.
struct Planner<'a>(&'a Simulation);

impl Ender for Planner<'_> {
    fn plan(&mut self, aim: &Aim) -> Result<Proposal, String> {
        let mut snapshots = vec![gpu_core::observe(self.0, self.0, self.0)];
        let diagnosis = gpu_reaper::diagnose(&snapshots);
        let guard = Guard::new(self.0, Vec::new()).unwrap();
        let request = match aim {
            Aim::Processes(keys) => {
                let pids = keys.iter().map(|key| key.pid).collect();
                Request { pids, ..Request::default() }
            }
            Aim::Unlisted(device) => {
                Request { devices: vec![device.clone()], ..Request::default() }
            }
        };
        let plan = gpu_reaper::plan(&snapshots, &diagnosis, &guard, &request);
        Ok(Proposal { now: snapshots.remove(0), diagnosis, plan, guard })
    }

    fn obstacle(&self) -> Option<String> {
        None
    }

    fn execute(
        &mut self,
        _: &Proposal,
        _: &mut dyn FnMut(gpu_reaper::Event<'_>) -> ControlFlow<()>,
    ) -> Result<gpu_reaper::Report, String> {
        Err("this only plans".to_owned())
    }
}

/// Handles the key that ends processes with a plan for the selected target.
fn plan(state: &mut State, machine: &Simulation) {
    let Effect::Plan(number, aim) = state.update(key(KeyCode::Char('K'))) else { panic!() };
    let mut planner = Planner(machine);
    let shown = planner.plan(&aim).map(|proposal| Shown::of(&planner, &aim, &proposal));
    state.update(Event::Ending(News::Planned(number, shown)));
}

#[test]
fn unlisted_memory_row_names_holder_and_remedy() {
    for (name, reason) in [("stuck-in-kernel", "8800"), ("inside-container", "host PIDs")] {
        let machine = Simulation::named(Path::new(name)).unwrap();
        let mut state = watched(name, 3, (100, 40));
        press(&mut state, "j");
        while matches!(state.selected().unwrap().subject, Subject::Process(_)) {
            press(&mut state, "j");
        }
        plan(&mut state, &machine);
        let screen = lines(&state);
        let dialog = screen.split("─ end processes").nth(1).unwrap();
        assert!(dialog.contains("nothing ") && dialog.contains(reason), "{screen}");
    }
}

#[test]
fn finding_text_fits_on_screen() {
    for (name, size, words) in [
        ("sick-gpus", (80, 24), "memory errors"),
        ("sick-gpus", (120, 40), "memory errors: a memory row could not be remapped"),
        ("lost-gpu", (120, 40), "lost: it has fallen off the bus"),
        ("inside-container", (100, 24), "foreign PID namespace"),
        ("inside-container", (80, 24), " foreign  "),
    ] {
        let screen = lines(&watched(name, 2, size));
        assert!(screen.contains(words) && screen.contains('░'), "{name}: {screen}");
    }
}

#[test]
fn daemon_of_service_has_no_job() {
    let screen = lines(&watched("display-and-daemons", 2, (200, 60)));
    assert!(screen.contains("Xorg") && !screen.contains(" Xorg  "), "{screen}");
}

#[test]
fn kill_dialog_matches_golden_screens() {
    let machine = Simulation::named(Path::new("labbox")).unwrap();
    let screens = SIZES.map(|size| {
        let mut state = watched("labbox", 3, size);
        press(&mut state, "jj");
        plan(&mut state, &machine);
        format!("{}x{}\n{}", size.0, size.1, lines(&state))
    });
    hold("ending.txt", &screens.join("\n"));
}

#[test]
fn other_markers_match_golden_screens() {
    let mut state = watched("labbox", 60, (80, 24));
    press(&mut state, "b");
    let blocks = lines(&state);
    press(&mut state, "b");
    let ascii = lines(&state);
    assert!(ascii.is_ascii(), "{ascii}");
    press(&mut state, "b");
    assert!(lines(&state).contains('⣿'));
    hold("markers.txt", &[blocks, ascii].join("\n"));
    // A terminal without UTF-8 has only ASCII characters.
    let mut state = State::new(Options { ascii: true, ..options() }, (80, 24));
    press(&mut state, "b");
    assert!(lines(&state).is_ascii());
}

/// Returns the first cell of a text.
fn cell<'a>(buffer: &'a Buffer, wanted: &str) -> &'a Cell {
    let all = text(buffer);
    let (y, line) = all.lines().enumerate().find(|(_, line)| line.contains(wanted)).expect(wanted);
    let before = line[..line.find(wanted).unwrap()].chars().count();
    &buffer[(before as u16, y as u16)]
}

#[test]
fn findings_are_accented_and_free_is_green() {
    let mut state = watched("labbox", 3, (120, 40));
    let buffer = state.drawn();
    for text in ["1+ findings", "ghost", "not listed: 19777"] {
        let cell = cell(&buffer, text);
        assert_eq!((cell.fg, cell.modifier), (Color::Yellow, Modifier::BOLD), "{text}");
    }
    for text in [", 1 possible", "1 possible finding: gpuws --sim NAME doctor"] {
        assert!(cell(&buffer, text).modifier.contains(Modifier::DIM), "{text}");
    }
    assert!(!self::text(&buffer).contains("idle holder"), "no process is named");
    assert_eq!(cell(&buffer, "free").fg, Color::Reset, "of the header");
    let screen = text(&buffer);
    let (y, line) = screen.lines().enumerate().find(|(_, line)| line.ends_with("free")).unwrap();
    assert_eq!(buffer[(line.chars().count() as u16 - 1, y as u16)].fg, Color::Green);
    assert_eq!(cell(&buffer, "█").fg, Color::Cyan);
    assert_eq!(cell(&buffer, "⣿").fg, Color::Cyan);
    assert!(cell(&buffer, "░").modifier.contains(Modifier::DIM));
    assert!(!cell(&buffer, "21044").modifier.contains(Modifier::REVERSED));
    press(&mut state, "j");
    assert!(cell(&state.drawn(), "21044").modifier.contains(Modifier::REVERSED));
}

#[test]
fn without_colour_there_is_none_but_the_selection_is_visible() {
    let mut state = State::new(Options { theme: Theme::Mono, ..options() }, (120, 40));
    let machine = Simulation::named(Path::new("labbox")).unwrap();
    state.update(Event::Frame(Box::new(take_frame(&machine))));
    press(&mut state, "j");
    let buffer = state.drawn();
    for cell in buffer.content() {
        assert_eq!((cell.fg, cell.bg), (Color::Reset, Color::Reset));
    }
    assert!(cell(&buffer, "21044").modifier.contains(Modifier::REVERSED));
}

#[test]
fn light_theme_has_neither_yellow_nor_cyan() {
    let mut state = State::new(Options { theme: Theme::Light, ..options() }, (120, 40));
    let machine = Simulation::named(Path::new("labbox")).unwrap();
    state.update(Event::Frame(Box::new(take_frame(&machine))));
    press(&mut state, "j");
    let buffer = state.drawn();
    for cell in buffer.content() {
        assert!(![Color::Yellow, Color::Cyan, Color::White].contains(&cell.fg), "{cell:?}");
    }
    assert_eq!(cell(&buffer, "1+ findings").fg, Color::Red);
    assert_eq!(cell(&buffer, "█").fg, Color::Blue);
}

#[test]
fn values_needing_attention_are_accented() {
    let attention = Attention { temperature: Some(50), memory: Some(80), power: None };
    let mut state = State::new(Options { attention, ..options() }, (120, 40));
    let machine = Simulation::named(Path::new("labbox")).unwrap();
    state.update(Event::Frame(Box::new(take_frame(&machine))));
    let buffer = state.drawn();
    assert_eq!(cell(&buffer, "71.0/80.0").fg, Color::Yellow);
    assert_eq!(cell(&buffer, "24.0/80.0").fg, Color::Reset);
    assert_eq!(cell(&buffer, "°C").fg, Color::Yellow);
    assert_eq!(cell(&buffer, "31°C").fg, Color::Reset);
    assert_eq!(cell(&buffer, "/400 W").fg, Color::Reset, "the power is not limited");
}

#[test]
fn unknown_size_defaults_to_common_terminal_size() {
    let state = watched("labbox", 1, (0, 0));
    assert_eq!((state.area().width, state.area().height), (80, 24));
    assert!(lines(&state).contains("21044 alice"));
}

#[test]
fn driver_wait_is_shown_until_next_snapshot() {
    let mut state = watched("labbox", 1, (80, 24));
    state.update(Event::Tick(Duration::from_secs(4)));
    assert!(
        lines(&state)
            .lines()
            .next()
            .unwrap()
            .ends_with("labbox · no answer from the machine for 4 s")
    );
    let what = "waiting for the driver for 5 s (nvmlInit_v2)".to_owned();
    state.update(Event::Stalled { what, since: Duration::from_secs(5) });
    assert!(
        lines(&state)
            .lines()
            .next()
            .unwrap()
            .ends_with("labbox · waiting for the driver for 5 s (nvmlInit_v2)")
    );
    let machine = Simulation::named(Path::new("labbox")).unwrap();
    state.update(Event::Frame(Box::new(take_frame(&machine))));
    assert!(!lines(&state).lines().next().unwrap().contains("waiting"));
}

#[test]
fn machine_without_driver_says_why() {
    let state = watched("no-driver", 1, (80, 24));
    let screen = lines(&state);
    assert!(screen.contains("\nno NVIDIA driver is installed\n"), "{screen}");
    assert!(screen.contains("\n remedy: install the driver, or try"), "{screen}");
    assert!(!screen.contains("no process uses"), "{screen}");
    assert!(!screen.contains("failed to "), "once: {screen}");
}

#[test]
fn details_show_command_and_parents_and_help_lists_every_key() {
    let mut state = watched("labbox", 2, (100, 40));
    press(&mut state, "j");
    state.update(key(KeyCode::Enter));
    assert_eq!(state.overlay(), Some(Overlay::Details));
    let screen = lines(&state);
    assert!(screen.contains("21044 python train.py") && screen.contains("started"), "{screen}");
    press(&mut state, "?");
    let screen = lines(&state);
    for binding in BINDINGS {
        assert!(screen.contains(binding.help), "{}\n{screen}", binding.help);
    }
    press(&mut state, "h");
    assert_eq!(state.overlay(), None);
}

#[test]
fn ghost_is_explained_with_the_next_command() {
    let mut state = watched("p100-ghost", 1, (80, 24));
    state.update(key(KeyCode::Enter));
    assert_eq!(state.selected().unwrap().subject, Subject::Unlisted);
    let screen = lines(&state);
    assert!(screen.contains("gpuws --sim NAME reap --gpu 0"), "{screen}");
    assert!(screen.contains("100562 t2t-decoder"), "{screen}");
}

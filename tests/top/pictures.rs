//! The pictures of the documentation: screens of shipped simulated machines, drawn by the program's
//! own view. `SNAPSHOTS=overwrite cargo test -p gpuws-tests pictures` draws them again.

use super::screens::{key, watched};
use super::svg::svg;
use ratatui_crossterm::crossterm::event::KeyCode;
use snapbox::Data;
use std::path::Path;

/// A picture: its name, the machine, the size of the screen, and the keys pressed.
type Picture = (&'static str, &'static str, (u16, u16), &'static [KeyCode]);

const PICTURES: [Picture; 4] = [
    ("top-1", "p100-ghost", (100, 20), &[]),
    ("top-1-ghost", "p100-ghost", (100, 20), &[KeyCode::Enter]),
    ("top-8", "gtx1080ti-x8-hoarder", (100, 24), &[KeyCode::Down]),
    ("top-64", "crowd:64x32", (160, 48), &[]),
];

#[test]
fn pictures_show_what_the_program_draws() {
    for (name, machine, size, keys) in PICTURES {
        let mut state = watched(machine, 60, size);
        for code in keys {
            state.update(key(*code));
        }
        let title = format!("gpuws --sim {machine} top");
        let path = format!("../docs/pictures/{name}.svg");
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
        let picture = svg(&state.drawn(), &title);
        snapbox::assert_data_eq!(picture, Data::read_from(&path, None).raw());
    }
}

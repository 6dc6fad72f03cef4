//! How logs alter messages: wrapping, prefixes, repetition, mixing and truncation.

use super::*;

#[test]
fn message_survives_log_formatting() {
    let want = Event { line: 0, ..one(TORCH_2) };
    let words: Vec<&str> = TORCH_2.split(' ').collect();
    let wrapped = |before: &str, width: usize| {
        words.chunks(width).map(|line| format!("{before}{}\n", line.join(" "))).collect::<String>()
    };
    for (how, log) in [
        ("a word a line", wrapped("", 1)),
        ("wrapped and indented", wrapped("        ", 7)),
        ("commented out", wrapped("    # ", 9)),
        ("quoted", wrapped("> ", 5)),
        ("quoted twice", wrapped("> > ", 5)),
        ("by rank", wrapped("[rank3]: ", 11)),
        ("behind a progress bar", format!("  3%|#  | 1/9 [00:01<?]\r 9%|## | 2/9\r{TORCH_2}\n")),
        ("coloured", format!("\x1b[31m{}\x1b[0m", TORCH_2.replace("free", "\x1b[1mfree\x1b[0m"))),
        ("as JSON", format!("{{\"error\":\"{}\"}}", wrapped("", 8).replace('\n', "\\n"))),
        (
            "with emphasis",
            TORCH_2.replace("3.25 GiB", "**3.25 GiB**").replace("40.00 GiB", "<u>40.00 GiB</u>"),
        ),
        ("with Windows line ends", wrapped("", 6).replace('\n', "\r\n")),
    ] {
        assert_eq!(Event { line: 0, ..one(&log) }, want, "{how}:\n{log}");
    }
}

#[test]
fn message_survives_panels_prefixes_and_wrapping() {
    let want = Event { line: 0, ..one(TORCH_2) };
    let words: Vec<&str> = TORCH_2.split(' ').collect();
    let each = |before: &str, after: &str| {
        let line = |words: &[&str]| format!("{before}{:<90}{after}\n", words.join(" "));
        words.chunks(8).map(line).collect::<String>()
    };
    let panel = each("\u{2502} ", " \u{2502}");
    let task = each("3: ", "");
    let container = each("2024-02-03T04:05:06.000000007Z stderr F ", "");
    for log in [panel, task, container] {
        assert_eq!(Event { line: 0, ..one(&log) }, want, "{log}");
    }
    for width in 60..140 {
        let letters: Vec<char> = TORCH_2.chars().collect();
        let lines = letters.chunks(width).map(|line| line.iter().collect::<String>());
        let log = lines.collect::<Vec<_>>().join("\n");
        assert_eq!(Event { line: 0, ..one(&log) }, want, "{width}:\n{log}");
    }
}

#[test]
fn interleaved_output_is_separated_by_prefix() {
    let other = TORCH_2.replace("GPU 2", "GPU 5").replace("3.25 GiB", "3.50 GiB");
    let rows = |text: &str| {
        let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
        words.chunks(9).map(|row| row.join(" ")).collect::<Vec<_>>()
    };
    for (first, second) in [("0: ", "1: "), ("[rank0]: ", "[rank1]: ")] {
        let pairs = rows(TORCH_2).into_iter().zip(rows(&other));
        let log: String = pairs.map(|(a, b)| format!("{first}{a}\n{second}{b}\n")).collect();
        let mut found = all(&log);
        found.iter_mut().for_each(|event| event.line = 0);
        let want = [one(TORCH_2), one(&other)].map(|event| Event { line: 0, ..event });
        assert_eq!(found, want, "{log}");
    }
}

#[test]
fn dump_survives_wrapping() {
    let want = Event { line: 0, ..one(DUMP) };
    let wrapped = |line: &str| {
        let mut rows = vec![String::new()];
        for word in line.split(' ') {
            let row = rows.last_mut().unwrap();
            if row.len() + word.len() >= 80 {
                rows.push(word.to_owned());
            } else {
                row.push_str(if row.is_empty() { "" } else { " " });
                row.push_str(word);
            }
        }
        rows.join("\n")
    };
    let log: Vec<String> = DUMP.lines().map(wrapped).collect();
    assert_eq!(Event { line: 0, ..one(&log.join("\n")) }, want);
}

#[test]
fn repeated_message_is_counted_not_duplicated() {
    let other = TORCH_2.replace("GPU 2 has", "GPU 3 has");
    let events = all(&format!("{TORCH_2}\n{other}\nDuring handling of the above\n{TORCH_2}\n"));
    let seen: Vec<_> = events.iter().map(|event| (event.gpu, event.times, event.line)).collect();
    assert_eq!(seen, [(Some(2), 2, 1), (Some(3), 1, 2)]);
}

#[test]
fn truncated_message_keeps_its_figures() {
    let cut =
        one("Tried to allocate 2.00 GiB (GPU 0; 4.00 GiB total capacity; 3.00 GiB already alloc");
    assert_eq!((text(&cut.tried), text(&cut.total), cut.allocated), ("2.00 GiB", "4.00 GiB", None));
    for length in 0..TORCH_2.len() {
        let Some(part) = TORCH_2.get(..length) else { continue };
        assert!(all(part).len() <= 1, "{part}");
    }
}

/// Reads a log in small pieces, pushed in chunks of another size.
fn in_pieces(log: &[u8], piece: usize, overlap: usize) -> Report {
    let mut reader = LogReader::with_pieces(piece, overlap);
    for part in log.chunks(37) {
        reader.push(part);
    }
    reader.finish()
}

#[test]
fn messages_across_pieces_are_read_once() {
    for gap in 0..90 {
        let steps = "step\n".repeat(400);
        let bare = "RuntimeError: CUDA error: out of memory\n";
        let log = format!(
            "{steps}{:>gap$}{TORCH_2}\n{steps}{DUMP}\n{steps}{bare}{steps}{TORCH_2}\n{steps}",
            '\n'
        );
        let report = in_pieces(log.as_bytes(), 6_000, 4_000);
        assert_eq!(report, in_pieces(log.as_bytes(), 1 << 20, 0), "{gap}");
        let seen: Vec<_> = report.events.iter().map(|event| (event.line, event.times)).collect();
        assert_eq!((seen.len(), seen[0].1), (3, 2), "{gap} {seen:?}");
        assert!(seen.iter().all(|(line, _)| *line > 400) && !report.is_cut, "{seen:?}");
    }
}

#[test]
fn dump_longer_than_a_piece_is_one_event() {
    let rows: String = (0..500)
        .map(|n| format!("I bfc_allocator.cc:1114] InUse at {:x} of size 256 next 7\n", n * 256))
        .collect();
    let head = "Allocator (GPU_1_bfc) ran out of memory trying to allocate 1.00GiB (rounded to 1073741824)\n\
        Next region of size 128000\n";
    let log = format!("{head}{rows}Stats:\nLimit: 5000\nInUse: 4000\n");
    let report = in_pieces(log.as_bytes(), 6_000, 4_000);
    assert_eq!(report.events.len(), 1);
    assert_eq!(report.events[0].dump.blocks.len(), 500);
    assert_eq!(report, read(log.as_bytes()));
}

#[test]
fn utf16_log_and_endless_line_are_read_in_pieces() {
    let log = format!("{}{TORCH_2}\n{}", "step\n".repeat(1000), "step\n".repeat(1000));
    for (mark, unit) in
        [([0xff, 0xfe], u16::to_le_bytes as fn(u16) -> [u8; 2]), ([0xfe, 0xff], u16::to_be_bytes)]
    {
        let units = log.encode_utf16().flat_map(unit);
        let bytes: Vec<u8> = mark.into_iter().chain(units).collect();
        assert_eq!(in_pieces(&bytes, 6_000, 4_000), read(log.as_bytes()));
    }
    let line = format!("{}\n{TORCH_2}\n", "x".repeat(20_000));
    assert_eq!(in_pieces(line.as_bytes(), 6_000, 4_000), read(line.as_bytes()));
    assert_eq!(in_pieces("x".repeat(20_000).as_bytes(), 6_000, 4_000).events, []);
}

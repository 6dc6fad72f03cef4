//! `nvidia-smi topo -m` and `topo -p2p`: a matrix of device names, then affinity columns.
//!
//! Pastes lose tabs, so the parser ignores them: the header gives the number of cells in a row, a
//! cell is one of a few words, joined words (`SYSSYS`) are split, and affinity follows the cells.

use crate::document::{Document, Kind, Topology};
use crate::failure;
use crate::field;
use crate::text::Text;
use gpu_core::Link;
use std::collections::BTreeMap;

/// The maximum number of devices of a matrix, and the maximum length of their names.
const MAX_DEVICES: usize = 256;
const MAX_NAME: usize = 64;

/// The maximum number of columns after the matrix; each row gets a value per column.
const MAX_AFFINITIES: usize = 4;

/// The columns after the matrix, as named in the header.
const CPU_AFFINITY: &str = "CPU Affinity";
const NUMA_AFFINITY: &str = "NUMA Affinity";
const GPU_NUMA_ID: &str = "GPU NUMA ID";

/// Cells of `topo -m` other than `NV<n>`.
const PATHS: &[&str] = &["NODE", "SYS", "PHB", "PXB", "PIX", "SOC", "PSB", "C2C", "X"];

/// Cells of `topo -p2p`.
const STATES: &[&str] = &["CNS", "GNS", "TNS", "DNS", "OK", "NS", "DR", "X", "U"];

/// The names of the header.
struct Header {
    devices: Vec<String>,
    affinities: Vec<&'static str>,
}

/// Parses the matrix.
pub(crate) fn parse(text: &Text, kind: Kind) -> Document {
    let mut document = Document::new(kind);
    let words = if kind == Kind::P2p { STATES } else { PATHS };
    let mut topology = Topology::default();
    let mut header: Option<Header> = None;
    let mut in_legend = false;
    let open_line = text.open_line();
    for (number, line) in text.lines() {
        let line = field::without_remark(line);
        if line.trim().is_empty() || is_legend(line) {
            in_legend |= line.contains("Legend");
            continue;
        }
        if let Some(found) = read_header(line) {
            in_legend = false;
            topology.columns.clone_from(&found.devices);
            header = Some(found);
            continue;
        }
        let row = header.as_ref().and_then(|header| Row::read(line, header, words));
        let row = row.map(|mut row| {
            let devices = topology.columns.len();
            if open_line == Some(number) && row.cells.len() < devices {
                // Cut in the middle of a cell, `NV18` would read as `NV1`.
                row.cells.pop();
            }
            row
        });
        match row {
            Some(row) if topology.matrix.len() < MAX_DEVICES => row.keep(&mut topology),
            Some(_) => document.note_unread(number, line, "row limit exceeded"),
            None if in_legend || failure::note(&mut document, line) => {}
            None => document.note_unread(number, line, "not a row of the matrix"),
        }
    }
    if header.is_some() {
        document.topology = Some(topology);
    }
    document
}

/// Returns the kind of matrix with the header `line`; the cells in `following` decide if the header
/// does not.
pub(crate) fn kind_of_header<'a>(
    line: &str,
    following: impl Iterator<Item = &'a str>,
) -> Option<Kind> {
    let header = read_header(line)?;
    if !header.affinities.is_empty() {
        return Some(Kind::Topo);
    }
    let mut rows = 0;
    for line in following.take(2 * MAX_DEVICES) {
        let line = field::without_remark(line);
        if line.trim().is_empty() {
            continue;
        }
        let cells = |words| Row::read(line, &header, words).filter(|row| !row.cells.is_empty());
        match (cells(PATHS), cells(STATES)) {
            // A lone `X` is a cell of both kinds.
            (Some(_), Some(_)) => rows += 1,
            (Some(_), None) => return Some(Kind::Topo),
            (None, Some(_)) => return Some(Kind::P2p),
            (None, None) => break,
        }
    }
    (rows > 0).then_some(Kind::P2p)
}

/// Parses the header: device names, of which the first is a GPU, then affinity columns.
fn read_header(line: &str) -> Option<Header> {
    let mut words = line.split_whitespace().take(2 * MAX_DEVICES).peekable();
    let mut header = Header { devices: Vec::new(), affinities: Vec::new() };
    while let Some(word) = words.next() {
        let affinity = match (word, words.peek().copied()) {
            ("CPU", Some("Affinity")) => Some(CPU_AFFINITY),
            ("NUMA" | "Mem" | "Memory", Some("Affinity")) => Some(NUMA_AFFINITY),
            ("GPU", Some("NUMA")) => Some(GPU_NUMA_ID),
            // Cut in the middle of a name.
            ("CPU" | "GPU" | "NUMA", None) => break,
            _ => None,
        };
        if let Some(affinity) = affinity {
            words.next();
            if affinity == GPU_NUMA_ID {
                words.next_if_eq(&"ID");
            }
            // There are three; a header with more is invalid.
            if header.affinities.len() == MAX_AFFINITIES {
                return None;
            }
            header.affinities.push(affinity);
        } else if !header.affinities.is_empty() {
            return None;
        } else if is_device(word) && header.devices.len() < MAX_DEVICES {
            header.devices.push(word.to_owned());
        } else {
            return None;
        }
    }
    let first = header.devices.first()?;
    is_gpu(first).then_some(header)
}

fn is_gpu(name: &str) -> bool {
    gpu_number(name).is_some()
}

fn gpu_number(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("GPU").or_else(|| name.strip_prefix("Gpu"))?;
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Returns whether a word can name a device: letters followed by a number, such as `GPU0`, `NIC12`,
/// `mlx5_bond_0`, `hfi1_0`.
fn is_device(word: &str) -> bool {
    word.len() <= MAX_NAME
        && word.starts_with(|c: char| c.is_ascii_alphabetic())
        && word.contains(|c: char| c.is_ascii_digit())
        && word.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        && split(word, PATHS).is_none()
}

/// A row of the matrix.
struct Row {
    name: String,
    cells: Vec<(String, Option<String>)>,
    affinities: Vec<(&'static str, Option<String>)>,
}

impl Row {
    /// Parses a row with the cells `words`.
    fn read(line: &str, header: &Header, words: &[&'static str]) -> Option<Self> {
        let mut parts = line.split_whitespace().peekable();
        let name = parts.next().filter(|name| is_device(name))?.to_owned();
        let mut cells = Vec::new();
        while cells.len() < header.devices.len() {
            let Some(glued) = parts.peek().and_then(|part| split(part, words)) else { break };
            parts.next();
            cells.extend(glued.into_iter().map(|cell| field::text(&cell)));
        }
        let mut parts = parts.peekable();
        if cells.is_empty() || (cells.len() < header.devices.len() && parts.peek().is_some()) {
            return None;
        }
        // A network card has no affinity; for a GPU without printed affinity, the value is absent.
        let is_gpu = is_gpu(&name);
        let affinities = header
            .affinities
            .iter()
            .map(|affinity| (*affinity, parts.next().map(field::text)))
            .filter_map(|(affinity, value)| match value {
                Some(value) => Some((affinity, value)),
                None => is_gpu.then_some((affinity, None)),
            })
            .collect();
        let devices = header.devices.iter().cloned();
        Some(Row { name, cells: devices.zip(cells).collect(), affinities })
    }

    fn keep(self, topology: &mut Topology) {
        for (affinity, value) in self.affinities {
            match affinity {
                CPU_AFFINITY => topology.cpu_affinity.insert(self.name.clone(), value),
                NUMA_AFFINITY => topology.numa_affinity.insert(self.name.clone(), value),
                _ => None,
            };
        }
        topology.matrix.insert(self.name, self.cells.into_iter().collect::<BTreeMap<_, _>>());
    }
}

/// Splits joined cells; `None` if any part of `part` is not a cell.
fn split(part: &str, words: &[&'static str]) -> Option<Vec<String>> {
    if field::absent(part).is_some() {
        return Some(vec![part.to_owned()]);
    }
    let mut cells = Vec::new();
    let mut rest = part;
    while !rest.is_empty() {
        let links = rest.strip_prefix("NV").map_or(0, |lanes| {
            2 + lanes.find(|c: char| !c.is_ascii_digit()).unwrap_or(lanes.len())
        });
        let length = if links > 2 && words.contains(&"SYS") {
            links
        } else {
            words.iter().find(|word| rest.starts_with(**word))?.len()
        };
        let (cell, after) = rest.split_at(length);
        cells.push(cell.to_owned());
        rest = after;
    }
    (cells.len() <= MAX_DEVICES).then_some(cells)
}

/// Returns whether a line is part of the legend: `Legend:`, `  X    = Self`, `  NIC0: mlx5_0`.
fn is_legend(line: &str) -> bool {
    let line = line.trim();
    let mut words = line.split_whitespace();
    match (words.next(), words.next()) {
        (Some("Legend:"), None) | (Some("NIC"), Some("Legend:")) => true,
        (Some(word), Some("=")) => {
            word == "NV#" || split(word, PATHS).or(split(word, STATES)).is_some()
        }
        (Some(name), Some(_)) => name.strip_suffix(':').is_some_and(is_device),
        _ => false,
    }
}

/// Returns the links between the devices of a `topo` document, by index; `None` without a matrix,
/// or with only the peer access matrix, which does not show paths.
///
/// TensorFlow's matrix only shows whether two devices have peer access. Over PCIe, they have it
/// below one host bridge and not across sockets: `Y` becomes [`Link::Phb`], `N` becomes
/// [`Link::Sys`].
pub fn topology(document: &Document) -> Option<gpu_core::Topology> {
    let topology = document.topology.as_ref().filter(|_| document.kind == Kind::Topo)?;
    let numbered = |name: &String| gpu_number(name).map(|number| (number, name.clone()));
    let mut gpus: BTreeMap<u32, String> = topology.columns.iter().filter_map(numbered).collect();
    gpus.extend(topology.matrix.keys().filter_map(numbered));
    // Links are found by index, so a matrix with a gap is ignored.
    if gpus.is_empty() || !gpus.keys().copied().eq(0..gpus.len() as u32) {
        return None;
    }
    let cell = |row: &String, column: &String| topology.matrix.get(row)?.get(column)?.as_deref();
    let link = |row: &String, column: &String| {
        if row == column {
            return Link::Itself;
        }
        // The matrix is symmetric: the opposite cell replaces one missing from a truncated row.
        cell(row, column).or_else(|| cell(column, row)).map_or(Link::Unknown, link_of)
    };
    let links =
        gpus.values().map(|row| gpus.values().map(|column| link(row, column)).collect()).collect();
    Some(gpu_core::Topology { links, ..gpu_core::Topology::default() })
}

fn link_of(cell: &str) -> Link {
    match cell {
        "X" => Link::Itself,
        "XGMI" => Link::Xgmi,
        "PIX" => Link::Pix,
        "PXB" => Link::Pxb,
        "PHB" | "Y" => Link::Phb,
        "NODE" => Link::Node,
        // `SOC` is the older name of `SYS`.
        "SYS" | "SOC" | "N" => Link::Sys,
        _ => {
            let lanes = cell.strip_prefix("NV").and_then(|lanes| lanes.parse().ok());
            lanes.map_or(Link::Unknown, Link::NvLink)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::clean;
    use proptest::prelude::*;

    const TWO: &str = "\tGPU0\tGPU1\tmlx5_0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n\
                       GPU0\t X \tNV12\tSYS\t0-3,8-11\t0\t\tN/A\n\
                       GPU1\tNV12\t X \tPIX\t4-7\t\tN/A\n\
                       mlx5_0\tSYS\tPIX\t X \n\n\
                       Legend:\n\n  X    = Self\n  SYS  = Connection over\nmore of it\n\n\
                       NIC Legend:\n\n  NIC0: mlx5_0\n";

    fn of(kind: Kind, text: &str) -> (Topology, Vec<crate::document::Unread>) {
        let document = parse(&clean(text.as_bytes()), kind);
        (document.topology.unwrap(), document.unread)
    }

    fn cell(topology: &Topology, row: &str, column: &str) -> Option<String> {
        topology.matrix[row][column].clone()
    }

    #[test]
    fn matrix_affinities_and_legend_are_parsed() {
        let (topology, unread) = of(Kind::Topo, TWO);
        assert_eq!(topology.columns, ["GPU0", "GPU1", "mlx5_0"]);
        assert_eq!(cell(&topology, "GPU1", "GPU0").as_deref(), Some("NV12"));
        assert_eq!(cell(&topology, "mlx5_0", "mlx5_0").as_deref(), Some("X"));
        assert_eq!(topology.cpu_affinity["GPU0"].as_deref(), Some("0-3,8-11"));
        assert_eq!(topology.numa_affinity["GPU1"], None);
        assert!(!topology.cpu_affinity.contains_key("mlx5_0"));
        assert_eq!(unread, []);
    }

    #[test]
    fn tabs_may_be_spaces_or_missing() {
        let (tabs, _) = of(Kind::Topo, TWO);
        assert_eq!(of(Kind::Topo, &TWO.replace('\t', "    ")).0, tabs);
        let glued = TWO.replace("NV12\tSYS", "NV12SYS").replace("SYS\tPIX", "SYSPIX");
        assert_eq!(of(Kind::Topo, &glued).0, tabs);
    }

    #[test]
    fn nic_rows_need_no_columns() {
        let text =
            "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\tSOC\t0-5\nGPU1\tSOC\tX\t6-11\nNIC0\tPHB\tSOC\n";
        let (topology, unread) = of(Kind::Topo, text);
        assert_eq!(cell(&topology, "NIC0", "GPU1").as_deref(), Some("SOC"));
        assert_eq!(unread, []);
    }

    #[test]
    fn truncated_row_keeps_its_cells() {
        let (topology, unread) = of(Kind::Topo, "\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\n");
        assert_eq!(topology.matrix["GPU0"].len(), 1);
        assert_eq!(unread, []);
        let open = "\tGPU0\tGPU1\tGPU2\nGPU0\tX\tNV1";
        assert_eq!(of(Kind::Topo, open).0.matrix["GPU0"].len(), 1);
    }

    #[test]
    fn peer_access_matrix_is_detected_by_cells() {
        let text = " \tGPU0\tGPU1\t\n GPU0\tX\tCNS\t\n GPU1\tTNS\tX\t\n";
        let (topology, _) = of(Kind::P2p, text);
        assert_eq!(cell(&topology, "GPU0", "GPU1").as_deref(), Some("CNS"));
        let kind = |text: &str| {
            let (header, rows) = text.split_once('\n').unwrap();
            kind_of_header(header, rows.lines())
        };
        assert_eq!(kind(text), Some(Kind::P2p));
        assert_eq!(kind(TWO), Some(Kind::Topo));
        assert_eq!(kind("\tGPU0\tGPU1\nGPU0\tX\tPIX\n"), Some(Kind::Topo));
        assert_eq!(kind("\tGPU0\n GPU0\tX\n"), Some(Kind::P2p));
        assert_eq!(kind("GPU0 is one\nGPU1 is two\n"), None);
    }

    #[test]
    fn links_are_ordered_by_index() {
        let text = "\tGPU1\tGPU0\tCPU Affinity\nGPU1\tX\tNV4\t0\nGPU0\tNV4\tX\t0\n";
        let links = topology(&parse(&clean(text.as_bytes()), Kind::Topo)).unwrap().links;
        assert_eq!(links[0], [Link::Itself, Link::NvLink(4)]);
        let gap = "\tGPU0\tGPU2\tCPU Affinity\nGPU0\tX\tSYS\t0\nGPU2\tSYS\tX\t0\n";
        assert_eq!(super::topology(&parse(&clean(gap.as_bytes()), Kind::Topo)), None);
    }

    #[test]
    fn every_path_is_a_link() {
        for (cell, link) in [
            ("X", Link::Itself),
            ("PIX", Link::Pix),
            ("PXB", Link::Pxb),
            ("PHB", Link::Phb),
            ("NODE", Link::Node),
            ("SYS", Link::Sys),
            ("SOC", Link::Sys),
            ("NV12", Link::NvLink(12)),
            ("PSB", Link::Unknown),
            ("N/A", Link::Unknown),
        ] {
            let text = format!("\tGPU0\tGPU1\tCPU Affinity\nGPU0\tX\t{cell}\t0\n");
            let links = topology(&parse(&clean(text.as_bytes()), Kind::Topo)).unwrap().links;
            assert_eq!(links[0][1], link, "{cell}");
            assert_eq!(links[1], [link, Link::Itself], "the other row is missing");
        }
    }

    #[test]
    fn only_matrix_of_topo_with_every_gpu_has_links() {
        let of = |kind, text: &str| topology(&parse(&clean(text.as_bytes()), kind));
        assert!(of(Kind::Topo, "\tGPU0\nGPU0\tX\n").is_some());
        assert!(of(Kind::P2p, "\tGPU0\nGPU0\tX\n").is_none());
        assert!(of(Kind::Topo, "\tGPU1\nGPU1\tX\n").is_none());
        assert!(of(Kind::Topo, "no matrix\n").is_none());
        assert_eq!(of(Kind::Topo, "\tGPU0\nGPU1\tSYS\n").unwrap().links.len(), 2);
    }

    #[test]
    fn headers_are_devices_then_affinities() {
        for (line, devices, affinities) in [
            ("GPU0", 1, &[][..]),
            ("Gpu0 NIC0 mlx5_1", 3, &[]),
            (
                "GPU0 CPU Affinity NUMA Affinity GPU NUMA ID",
                1,
                &[CPU_AFFINITY, NUMA_AFFINITY, GPU_NUMA_ID],
            ),
            ("GPU0 Mem Affinity", 1, &[NUMA_AFFINITY]),
            ("GPU0 Memory Affinity", 1, &[NUMA_AFFINITY]),
            ("GPU0 CPU Affinity NUMA", 1, &[CPU_AFFINITY]),
            ("GPU0 CPU", 1, &[]),
            ("GPU0 CPU Affinity GPU", 1, &[CPU_AFFINITY]),
        ] {
            let header = read_header(line).unwrap();
            assert_eq!((header.devices.len(), header.affinities.as_slice()), (devices, affinities));
        }
        let many = |count: usize| format!("GPU0{}", " CPU Affinity".repeat(count));
        assert!(read_header(&many(MAX_AFFINITIES)).is_some());
        for line in [
            "",
            "NIC0 GPU0",
            "GPUs are",
            "GPU0 word",
            "GPU0 1",
            "GPU0 CPU Affinity GPU1",
            "GPU0 SYS",
            "GPU0 x#1",
            many(MAX_AFFINITIES + 1).as_str(),
        ] {
            assert!(read_header(line).is_none(), "{line}");
        }
        let long = |length: usize| format!("GPU0 n{}", "1".repeat(length - 1));
        assert!(read_header(&long(MAX_NAME)).is_some());
        assert!(read_header(&long(MAX_NAME + 1)).is_none());
    }

    #[test]
    fn affinities_are_kept_by_row() {
        let text = "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n\
                    GPU0\tX\tSYS\t0-7\t1\tN/A\nNIC0\tSYS\tX\n";
        let (topology, unread) = of(Kind::Topo, text);
        assert_eq!(unread, []);
        let some = |text: &str| Some(text.to_owned());
        assert_eq!(topology.cpu_affinity, [("GPU0".to_owned(), some("0-7"))].into());
        assert_eq!(topology.numa_affinity, [("GPU0".to_owned(), some("1"))].into());
        let text = "\tGPU0\tCPU Affinity\nGPU0\tX\n";
        let (topology, _) = of(Kind::Topo, text);
        assert_eq!(topology.cpu_affinity, [("GPU0".to_owned(), None)].into());
    }

    #[test]
    fn legend_is_neither_row_nor_unread() {
        let text = "\tGPU0\nGPU0\tX\n\nLegend:\n\n  X    = Self\n  NV#  = bonded\n  \
                    any words here\n\nNIC Legend:\n\n  NIC0: mlx5_0\n";
        let (topology, unread) = of(Kind::Topo, text);
        assert_eq!((topology.matrix.len(), unread), (1, vec![]));
        for (line, is) in [
            ("SYS = x", true),
            ("OK = x", true),
            ("Q = x", false),
            ("NIC0: mlx", true),
            ("NIC: mlx", false),
            ("Legend: x", false),
            ("NIC Legend", false),
        ] {
            assert_eq!(is_legend(line), is, "{line}");
        }
        let (_, unread) = of(Kind::Topo, "\tGPU0\nany words here\nGPU0\tX\n");
        assert_eq!(unread.len(), 1);
    }

    const PIECES: &[&str] = &[
        "GPU0", "GPU1", "GPU9", "NIC1", "X", "SYS", "NV", "NV4", "OK", "NS", "CPU", "Affinity",
        "-", "0", "7", "=", ":", "\t", " ", "\n",
    ];

    proptest! {
        #[test]
        fn matrix_round_trips(
            cells in (1usize..6).prop_flat_map(|n| {
                let cell = prop::sample::select(vec!["SYS", "NODE", "PIX", "NV2", "NV18", "C2C"]);
                prop::collection::vec(prop::collection::vec(cell, n), n)
            }),
            blanks in prop::sample::select(vec!["\t", "  ", " \t "]),
        ) {
            let mut text: String = (0..cells.len()).map(|i| format!("{blanks}GPU{i}")).collect();
            text.push_str("\tCPU Affinity\n");
            for (i, row) in cells.iter().enumerate() {
                text.push_str(&format!("GPU{i}{blanks}{}{blanks}0-7\n", row.join(blanks)));
            }
            let (topology, unread) = of(Kind::Topo, &text);
            prop_assert_eq!(unread, []);
            for (i, row) in cells.iter().enumerate() {
                for (j, want) in row.iter().enumerate() {
                    let got = cell(&topology, &format!("GPU{i}"), &format!("GPU{j}"));
                    prop_assert_eq!(got.as_deref(), Some(*want));
                }
            }
        }

        #[test]
        fn arbitrary_text_never_panics(pieces in prop::collection::vec(prop::sample::select(PIECES), 0..120)) {
            let text = clean(pieces.concat().as_bytes());
            for kind in [Kind::Topo, Kind::P2p] {
                let document = parse(&text, kind);
                super::topology(&document);
            }
            if let Some((_, first)) = text.lines().next() {
                kind_of_header(first, text.lines().skip(1).map(|(_, line)| line));
            }
        }
    }
}

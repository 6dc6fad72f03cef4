//! Prints the topology as a matrix like `nvidia-smi topo -m`.

use gpu_core::{Link, Topology};

/// A matrix of links: a row and a column for each device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matrix {
    links: Vec<Vec<Link>>,
    nodes: Vec<Option<u32>>,
}

/// The heading of the column for host memory.
const NUMA: &str = "NUMA Affinity";

/// The cell for an unknown NUMA node.
const NOT_REPORTED: &str = "N/A";

impl Matrix {
    /// Takes a topology, and the nearest NUMA node of each device by index, if known.
    pub fn of(topology: &Topology, nodes: &[Option<u32>]) -> Self {
        Matrix { links: topology.links.clone(), nodes: nodes.to_vec() }
    }

    /// Returns the lines of the matrix, header included, within `width` columns if possible. If
    /// headings such as `GPU0` do not fit, the columns have only numbers; if that does not fit
    /// either, the matrix is split into blocks with an empty line between them.
    pub fn lines(&self, width: usize) -> Vec<String> {
        let affinity = self.affinity();
        let aside = affinity.as_ref().map_or(0, |_| NUMA.len() + 2);
        let count = self.links.len();
        let long = Form { head: "GPU", gap: 2 };
        let short = Form { head: "", gap: 1 };
        let label = self.label(count.saturating_sub(1)).len();
        for form in [long, short] {
            if label + count * self.column(form) + aside <= width {
                return self.block(form, 0..count, affinity.as_deref());
            }
        }
        let room = width.saturating_sub(label + aside);
        let each = (room / self.column(short)).clamp(1, count.max(1));
        let mut lines = Vec::new();
        for begin in (0..count).step_by(each) {
            if begin > 0 {
                lines.push(String::new());
            }
            let end = count.min(begin + each);
            lines.extend(self.block(short, begin..end, affinity.as_deref()));
        }
        lines
    }

    /// Returns the legend for each kind of cell in the matrix.
    pub fn legend(&self) -> Vec<(&'static str, &'static str)> {
        let all: [(&str, &str, IsKind); 9] = [
            ("X", "the device itself", |link| *link == Link::Itself),
            ("NV#", "number of NVLinks", |link| matches!(link, Link::NvLink(_))),
            ("XGMI", "AMD's link between GPUs", |link| *link == Link::Xgmi),
            ("PIX", "at most a single PCIe bridge", |link| *link == Link::Pix),
            ("PXB", "multiple PCIe bridges, without the host bridge", |link| *link == Link::Pxb),
            ("PHB", "PCIe host bridge (typically the CPU)", |link| *link == Link::Phb),
            ("NODE", "between PCIe host bridges within a NUMA node", |link| *link == Link::Node),
            ("SYS", "SMP interconnect between NUMA nodes", |link| *link == Link::Sys),
            ("?", "not reported", |link| *link == Link::Unknown),
        ];
        let shown = all.into_iter().filter(|(_, _, is)| self.links.iter().flatten().any(is));
        shown.map(|(cell, meaning, _)| (cell, meaning)).collect()
    }

    fn label(&self, index: usize) -> String {
        format!("GPU{index}")
    }

    /// Returns the width of a column of the matrix, gap included.
    fn column(&self, form: Form) -> usize {
        let cells = self.links.iter().flatten().map(|link| link.to_string().len());
        let last = format!("{}{}", form.head, self.links.len().saturating_sub(1)).len();
        cells.max().unwrap_or(0).max(last) + form.gap
    }

    /// Returns the column for host memory; `None` if no device reports it.
    fn affinity(&self) -> Option<Vec<String>> {
        self.nodes.iter().any(Option::is_some).then(|| {
            let node = |index: usize| self.nodes.get(index).copied().flatten();
            let cell =
                |index| node(index).map_or(NOT_REPORTED.to_owned(), |node: u32| node.to_string());
            (0..self.links.len()).map(cell).collect()
        })
    }

    fn block(
        &self,
        form: Form,
        columns: std::ops::Range<usize>,
        affinity: Option<&[String]>,
    ) -> Vec<String> {
        let first = self.label(self.links.len().saturating_sub(1)).len();
        let width = self.column(form);
        let line = |label: &str, cells: &mut dyn Iterator<Item = String>, aside: Option<&str>| {
            let mut line = format!("{label:first$}");
            for cell in cells {
                let gap = form.gap;
                line.push_str(&format!("{:gap$}{cell:<width$}", "", width = width - gap));
            }
            if let Some(aside) = aside {
                line.push_str("  ");
                line.push_str(aside);
            }
            line.truncate(line.trim_end().len());
            line
        };
        let mut head = columns.clone().map(|index| format!("{}{index}", form.head));
        let mut lines = vec![line("", &mut head, affinity.map(|_| NUMA))];
        for (index, row) in self.links.iter().enumerate() {
            let cell = |column| row.get(column).copied().unwrap_or(Link::Unknown).to_string();
            let aside = affinity.map(|affinity| affinity[index].as_str());
            lines.push(line(&self.label(index), &mut columns.clone().map(cell), aside));
        }
        lines
    }
}

/// Returns whether any cell is of this kind.
type IsKind = fn(&Link) -> bool;

/// The headings of columns and the distance between them.
#[derive(Clone, Copy)]
struct Form {
    head: &'static str,
    gap: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(count: usize, link: fn(usize, usize) -> Link) -> Topology {
        let cell = |from: usize, to: usize| {
            if from == to { Link::Itself } else { link(from.min(to), from.max(to)) }
        };
        let row = |from| (0..count).map(|to| cell(from, to)).collect();
        Topology { links: (0..count).map(row).collect(), ..Topology::default() }
    }

    fn sockets(from: usize, to: usize) -> Link {
        match (from / 2 == to / 2, from + to == 3) {
            (true, _) => Link::Node,
            (_, true) => Link::NvLink(2),
            _ => Link::Sys,
        }
    }

    #[test]
    fn matrix_matches_nvidia_smi() {
        let matrix = Matrix::of(&pairs(4, sockets), &[Some(0), Some(0), Some(1), None]);
        let lines = [
            "      GPU0  GPU1  GPU2  GPU3  NUMA Affinity",
            "GPU0  X     NODE  SYS   NV2   0",
            "GPU1  NODE  X     NV2   SYS   0",
            "GPU2  SYS   NV2   X     NODE  1",
            "GPU3  NV2   SYS   NODE  X     N/A",
        ];
        assert_eq!(matrix.lines(80), lines);
        let cells: Vec<&str> = matrix.legend().into_iter().map(|(cell, _)| cell).collect();
        assert_eq!(cells, ["X", "NV#", "NODE", "SYS"]);
    }

    #[test]
    fn wide_matrix_is_split_into_blocks() {
        let matrix = Matrix::of(&pairs(4, sockets), &[None; 4]);
        let widths = |width| matrix.lines(width).iter().map(String::len).max();
        assert_eq!((widths(28), widths(27)), (Some(28), Some(24)));
        let narrow = [
            "     0    1",
            "GPU0 X    NODE",
            "GPU1 NODE X",
            "GPU2 SYS  NV2",
            "GPU3 NV2  SYS",
            "",
            "     2    3",
            "GPU0 SYS  NV2",
            "GPU1 NV2  SYS",
            "GPU2 X    NODE",
            "GPU3 NODE X",
        ];
        assert_eq!(matrix.lines(15), narrow);
        // At least one column, even if it does not fit.
        assert_eq!(matrix.lines(0).iter().filter(|line| line.is_empty()).count(), 3);
        let sixteen = Matrix::of(&pairs(16, |_, _| Link::NvLink(6)), &[]);
        assert!(sixteen.lines(80).iter().all(|line| line.len() <= 80));
        assert_eq!(sixteen.lines(80).len(), 17);
        assert_eq!(Matrix::of(&Topology::default(), &[]).lines(80), [""]);
    }

    #[test]
    fn unknown_links_stay_unknown() {
        let mut topology = pairs(2, |_, _| Link::Unknown);
        topology.links[1].pop();
        let matrix = Matrix::of(&topology, &[]);
        assert_eq!(matrix.lines(80)[1..], ["GPU0  X     ?", "GPU1  ?     ?"]);
        assert_eq!(matrix.legend().last(), Some(&("?", "not reported")));
    }

    /// The column for host memory takes 15 columns at the right.
    #[test]
    fn host_memory_counts_towards_width() {
        let matrix = Matrix::of(&pairs(4, sockets), &[Some(0); 4]);
        let widest = |width| matrix.lines(width).iter().map(String::len).max();
        assert_eq!([43, 42, 39, 38].map(widest), [43, 39, 39, 34].map(Some));
        assert_eq!(matrix.lines(38).len(), 5 + 1 + 5, "three columns, and one");
    }

    #[test]
    fn legend_names_only_links_of_matrix() {
        let cells = |link| {
            let legend = Matrix::of(&pairs(2, link), &[]).legend();
            legend.into_iter().map(|(cell, _)| cell).collect::<Vec<_>>()
        };
        assert_eq!(cells(|_, _| Link::Pix), ["X", "PIX"]);
        assert_eq!(cells(|_, _| Link::Pxb), ["X", "PXB"]);
        assert_eq!(cells(|_, _| Link::Phb), ["X", "PHB"]);
    }
}

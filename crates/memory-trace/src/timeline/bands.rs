//! The largest allocations as stacked bands.

use super::history::Life;
use super::scale::Scale;

/// The maximum number of bands.
const MAX: usize = 800;
/// The maximum number of their corners, which bounds the size of the picture.
const MAX_CORNERS: usize = 40_000;

/// An allocation over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Band {
    /// Its index among the lives.
    pub(super) life: usize,
    /// Its steps: the position in tenths, and the bytes below the band from there on.
    pub(super) steps: Vec<(i64, u64)>,
    /// Its end.
    pub(super) end: i64,
    /// Whether it is drawn in the dark tone; the band below it has the other tone.
    pub(super) is_dark: bool,
}

/// Returns the bands of the largest allocations.
///
/// `position` maps a time to a position on the axis; `end` is the end of the job.
pub(super) fn stack(
    lives: &[Life],
    scale: &Scale,
    position: impl Fn(usize) -> i64,
    end: i64,
) -> Vec<Band> {
    // A band less than half a unit high would be invisible.
    let mut largest: Vec<usize> =
        (0..lives.len()).filter(|life| scale.height(lives[*life].size) >= 5).collect();
    largest.sort_by_key(|life| (std::cmp::Reverse(lives[*life].size), *life));
    largest.truncate(MAX);
    loop {
        let bands = stacked(&largest, lives, &position, end);
        let corners: usize = bands.iter().map(|band| band.steps.len()).sum();
        if corners <= MAX_CORNERS || largest.len() <= 1 {
            return bands;
        }
        largest.truncate(largest.len() / 2);
    }
}

fn stacked(
    chosen: &[usize],
    lives: &[Life],
    position: &impl Fn(usize) -> i64,
    end: i64,
) -> Vec<Band> {
    let mut changes: Vec<(usize, bool, usize)> = Vec::with_capacity(2 * chosen.len());
    let mut bands: Vec<Band> = Vec::with_capacity(chosen.len());
    for (band, &life) in chosen.iter().enumerate() {
        let Life { from, to, .. } = lives[life];
        changes.push((from, true, band));
        if let Some(to) = to {
            changes.push((to, false, band));
        }
        bands.push(Band { life, steps: Vec::new(), end: to.map_or(end, position), is_dark: false });
    }
    // Of the initial memory, the longest-lived is at the bottom.
    let stays = |band: usize| lives[chosen[band]].to.unwrap_or(usize::MAX);
    changes.sort_by_key(|&(time, begins, band)| {
        let order = if begins { usize::MAX - stays(band) } else { 0 };
        (time, begins, order, band)
    });
    let mut pile: Vec<usize> = Vec::new();
    let mut height = 0;
    for (time, begins, band) in changes {
        let size = lives[chosen[band]].size;
        let x = position(time);
        if begins {
            bands[band].steps.push((x, height));
            bands[band].is_dark = pile.last().is_none_or(|under| !bands[*under].is_dark);
            pile.push(band);
            height += size;
            continue;
        }
        let Some(at) = pile.iter().position(|other| *other == band) else { continue };
        pile.remove(at);
        height -= size;
        for &above in &pile[at..] {
            let steps = &mut bands[above].steps;
            let Some(&(since, under)) = steps.last() else { continue };
            // Merge two moves at the same position.
            if since == x {
                steps.pop();
            }
            steps.push((x, under - size));
        }
    }
    bands
}

#[cfg(test)]
mod tests {
    use super::super::history::Origin;
    use super::*;

    fn life(size: u64, from: usize, to: Option<usize>) -> Life {
        Life { size, from, to, origin: Origin::Step(from) }
    }

    const SCALE: Scale = Scale { events: 100, top: 100, base: 400 };

    #[test]
    fn bands_above_drop_when_memory_is_freed() {
        let lives = [life(10, 1, Some(4)), life(20, 2, Some(6)), life(5, 3, None)];
        let bands = stack(&lives, &SCALE, |time| time as i64 * 100, 900);
        let of = |life: usize| bands.iter().find(|band| band.life == life).expect("it is large");
        assert_eq!((of(0).steps.clone(), of(0).end), (vec![(100, 0)], 400));
        assert_eq!(of(1).steps, [(200, 10), (400, 0)]);
        assert_eq!((of(2).steps.clone(), of(2).end), (vec![(300, 30), (400, 20), (600, 0)], 900));
    }

    #[test]
    fn drops_invisible_bands_and_merges_steps_at_same_x() {
        let small = Scale { top: 100_000, ..SCALE };
        let lives = [life(60, 0, Some(3)), life(30_000, 0, Some(4)), life(40_000, 1, None)];
        let bands = stack(&lives, &small, |_| 7, 7);
        assert_eq!(bands.len(), 2);
        assert_eq!(bands[0], Band { life: 2, steps: vec![(7, 0)], end: 7, is_dark: false });
    }

    #[test]
    fn longest_lived_initial_allocations_are_lowest() {
        let lives = [life(10, 0, Some(2)), life(10, 0, None)];
        let bands = stack(&lives, &SCALE, |time| time as i64, 5);
        assert_eq!((bands[0].steps.len(), bands[1].steps.len()), (1, 1));
        assert_eq!((bands[0].steps[0].1, bands[1].steps[0].1), (10, 0));
    }

    #[test]
    fn corner_count_is_bounded() {
        // Each time the lowest band is freed, all others move down.
        let lives: Vec<_> = (0..500).map(|n| life(1000, n, Some(1000 + n))).collect();
        let scale = Scale { events: 2000, top: 500_000, base: 400 };
        let bands = stack(&lives, &scale, |time| time as i64, 2000);
        let corners: usize = bands.iter().map(|band| band.steps.len()).sum();
        assert!(corners <= MAX_CORNERS && bands.len() > 100, "{corners} of {}", bands.len());
    }
}

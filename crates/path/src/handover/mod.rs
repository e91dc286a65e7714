//! Handover policies: which satellite each end of a path uses. One file each, one table.

mod immediate;
mod leoem;
mod longest_visible_grid;
mod max_elevation_grid;
mod nearest_grid;
mod on_grid;
mod shortest_grid;
mod sticky;

use skyhop_model::{Compat, UnknownWord};
use std::collections::BTreeSet;

use skyhop_units::{Duration, Instant, UtcInstant};

use crate::request::UtcGrid;
use crate::route::Graph;

/// A policy that can be asked for.
#[derive(Debug, Clone, Copy)]
pub struct PolicyEntry {
    /// The name in scenarios and path files.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Whether it chooses at the moments of the grid alone, as long as the path does not break.
    pub follows_grid: bool,
    /// Makes one for a path that begins.
    pub make: fn(UtcGrid) -> Box<dyn HandoverPolicy>,
}

/// All policies.
pub const POLICIES: [PolicyEntry; 7] = [
    PolicyEntry {
        name: "shortest-grid",
        summary: "the satellites of the shortest path, chosen at :12, :27, :42 and :57 UTC or when the path \
                  breaks",
        follows_grid: true,
        make: |grid| Box::new(shortest_grid::ShortestGrid::new(grid)),
    },
    PolicyEntry {
        name: "leoem",
        summary: "the nearest satellite, chosen again every 16 s or when the path breaks",
        follows_grid: false,
        make: |_| Box::new(leoem::Leoem::default()),
    },
    PolicyEntry {
        name: "immediate",
        summary: "at each step the satellites of the shortest path, as Hypatia does",
        follows_grid: false,
        make: |_| Box::new(immediate::Immediate::default()),
    },
    PolicyEntry {
        name: "nearest-grid",
        summary: "the nearest satellite, chosen at :12, :27, :42 and :57 UTC or when the path breaks",
        follows_grid: true,
        make: |grid| Box::new(nearest_grid::policy(grid)),
    },
    PolicyEntry {
        name: "max-elevation-grid",
        summary: "the highest satellite, chosen at :12, :27, :42 and :57 UTC or when the path breaks",
        follows_grid: true,
        make: |grid| Box::new(max_elevation_grid::policy(grid)),
    },
    PolicyEntry {
        name: "longest-visible-grid",
        summary: "the satellite that stays in view longest, chosen at :12, :27, :42 and :57 UTC or \
                  when the path breaks",
        follows_grid: true,
        make: |grid| Box::new(longest_visible_grid::policy(grid)),
    },
    PolicyEntry {
        name: "sticky",
        summary: "a satellite is kept until the path breaks, then the one that stays in view longest",
        follows_grid: false,
        make: |_| Box::new(sticky::Sticky::default()),
    },
];

/// The policy that is used where none is asked for: with a compatibility mode what the other tool does.
pub const fn policy_of(compat: Compat) -> &'static str {
    match compat {
        Compat::None => "shortest-grid",
        Compat::Leoem => "leoem",
        Compat::Hypatia => "immediate",
    }
}

/// The policy with this name.
///
/// # Errors
/// There is none; the error names those there are.
pub fn policy(name: &str) -> Result<PolicyEntry, UnknownWord> {
    let unknown = || UnknownWord::new("handover policy", name, &POLICIES.map(|entry| entry.name));
    POLICIES.into_iter().find(|entry| entry.name == name).ok_or_else(unknown)
}

/// Decides at each step which satellites the two ends use.
pub trait HandoverPolicy: Send {
    /// The satellites of both ends from this step on; `None` for an end that has none.
    fn choose(&mut self, view: &View<'_>) -> Selection;
}

/// The satellites of both ends, `from` first.
pub type Selection = [Option<Link>; 2];

/// An end's link to a satellite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// The satellite's id.
    pub satellite: u32,
    /// The one-way delay of the link when the satellite was chosen, in seconds.
    pub delay_s: f64,
    /// The sine of the satellite's elevation at that time.
    pub sin_elevation: f64,
}

/// Knows how long satellites stay in view.
pub trait Outlook {
    /// How long from now on an end sees a satellite; at most an hour.
    fn in_view_for(&self, end: usize, satellite: u32) -> Duration;
}

/// What a policy sees at a step.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// The time since the path began.
    pub now: Instant,
    /// The same moment of UTC.
    pub utc: UtcInstant,
    /// The links that each end could have now, in ascending order of satellites.
    pub in_view: [&'a [Link]; 2],
    /// Whether a satellite may be kept that is no longer in view.
    pub keeps_lost_satellite: bool,
    /// The part of the network that each satellite belongs to: a route exists within a part.
    pub parts: &'a [u32],
    /// The links between satellites (and gateways), with their delays.
    pub graph: &'a Graph,
    /// What the next minutes bring.
    pub outlook: &'a dyn Outlook,
}

impl View<'_> {
    /// Whether there is a route between two links' satellites; not where an end has none.
    pub fn connects(&self, selection: Selection) -> bool {
        match selection {
            [Some(a), Some(b)] => {
                self.parts[a.satellite as usize] == self.parts[b.satellite as usize]
            }
            _ => false,
        }
    }

    /// The link with the smallest delay at an end; of equals the lowest satellite id.
    pub fn nearest(&self, end: usize) -> Option<Link> {
        let links = self.in_view[end].iter().copied();
        links.reduce(|best, link| if link.delay_s < best.delay_s { link } else { best })
    }

    /// The links of an end over which the other end could be reached, if it chose well.
    pub fn useful(&self, end: usize) -> impl Iterator<Item = Link> {
        let part = |link: &Link| self.parts[link.satellite as usize];
        let others: BTreeSet<u32> = self.in_view[1 - end].iter().map(part).collect();
        self.in_view[end].iter().copied().filter(move |link| others.contains(&part(link)))
    }

    /// The links of an end that have a route to a link of the other end.
    pub fn reaching(&self, end: usize, other: Link) -> impl Iterator<Item = Link> {
        let part = self.parts[other.satellite as usize];
        let links = self.in_view[end].iter().copied();
        links.filter(move |link| self.parts[link.satellite as usize] == part)
    }

    /// Whether an end may go on using a satellite.
    pub fn may_keep(&self, end: usize, link: Link) -> bool {
        self.keeps_lost_satellite
            || self.in_view[end].binary_search_by_key(&link.satellite, |l| l.satellite).is_ok()
    }
}

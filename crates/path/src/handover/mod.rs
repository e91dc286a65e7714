//! Handover policies, which choose the satellite of each end of a path: one file each, and the table [`POLICIES`].

mod forecast;
mod immediate;
mod leoem;
mod longest_visible_grid;
mod max_elevation_grid;
mod nearest_grid;
mod on_grid;
mod shortest_grid;
mod sticky;

use skyhop_model::{Compat, UnknownName};
use std::collections::BTreeSet;

use skyhop_units::{Duration, Instant, UtcInstant};

use crate::request::UtcGrid;
use crate::route::Graph;
pub(crate) use forecast::OrbitForecast;

/// Name of the policy with which each path is the shortest at each step.
pub const IMMEDIATE: &str = "immediate";

/// Entry of the table of policies.
#[derive(Debug, Clone, Copy)]
pub struct PolicyEntry {
    /// Name in scenarios and path files.
    pub name: &'static str,
    /// Summary for users, in one line.
    pub summary: &'static str,
    /// Whether the policy chooses satellites only at the times of the grid, unless the path breaks.
    pub follows_grid: bool,
    /// Constructor of the policy, called once per path.
    pub make: fn(UtcGrid) -> Box<dyn HandoverPolicy>,
}

/// Table of all policies, by name.
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
        name: IMMEDIATE,
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

/// Name of the default policy: in a compatibility mode the policy of the other tool.
pub const fn default_policy(compat: Compat) -> &'static str {
    match compat {
        Compat::None => "shortest-grid",
        Compat::Leoem => "leoem",
        Compat::Hypatia => IMMEDIATE,
    }
}

/// Look up a policy by its name.
///
/// # Errors
/// No policy has this name; the error lists the names.
pub fn policy(name: &str) -> Result<PolicyEntry, UnknownName> {
    let unknown = || UnknownName::new("handover policy", name, &POLICIES.map(|entry| entry.name));
    POLICIES.into_iter().find(|entry| entry.name == name).ok_or_else(unknown)
}

/// Policy that chooses at each step the satellites of both ends.
pub trait HandoverPolicy: Send {
    /// Choose the satellites of both ends from this step on; `None` for an end without a satellite.
    fn choose(&mut self, view: &View<'_>) -> Selection;
}

/// Links of both ends to their satellites, `from` first.
pub type Selection = [Option<Link>; 2];

/// Link between an end and a satellite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link {
    /// Node id of the satellite.
    pub satellite: u32,
    /// One-way delay of the link at the time when the satellite was chosen, in seconds.
    pub delay_s: f64,
    /// Sine of the satellite's elevation at that time.
    pub sin_elevation: f64,
}

/// Forecast of how long satellites stay in view.
pub trait VisibilityForecast {
    /// Time for which a satellite stays in view of an end, counted from now; at most an hour.
    fn time_in_view(&self, end: usize, satellite: u32) -> Duration;
}

/// Input of a policy at one step.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Time since the start of the path.
    pub now: Instant,
    /// UTC of the step.
    pub utc: UtcInstant,
    /// Possible links of each end, in ascending order of satellites.
    pub in_view: [&'a [Link]; 2],
    /// Whether an end may keep a satellite that is no longer in view.
    pub keeps_lost_satellite: bool,
    /// Connected component of each node: a route exists between nodes of the same component.
    pub components: &'a [u32],
    /// Links between satellites (and gateways), with their one-way delays.
    pub graph: &'a Graph,
    /// Forecast of how long satellites stay in view.
    pub visibility: &'a dyn VisibilityForecast,
}

impl View<'_> {
    /// Whether there is a route between the satellites of both ends; false if an end has none.
    pub fn connects(&self, selection: Selection) -> bool {
        match selection {
            [Some(a), Some(b)] => {
                self.components[a.satellite as usize] == self.components[b.satellite as usize]
            }
            _ => false,
        }
    }

    /// Link with the smallest delay at an end; of equal ones that with the lowest satellite id.
    pub fn nearest(&self, end: usize) -> Option<Link> {
        let links = self.in_view[end].iter().copied();
        links.reduce(|best, link| if link.delay_s < best.delay_s { link } else { best })
    }

    /// Links of an end whose satellite has a route to at least one satellite in view of the other end.
    pub fn links_to_any(&self, end: usize) -> impl Iterator<Item = Link> {
        let component = |link: &Link| self.components[link.satellite as usize];
        let others: BTreeSet<u32> = self.in_view[1 - end].iter().map(component).collect();
        self.in_view[end].iter().copied().filter(move |link| others.contains(&component(link)))
    }

    /// Links of an end whose satellite has a route to the satellite of `other`, a link of the other end.
    pub fn links_to(&self, end: usize, other: Link) -> impl Iterator<Item = Link> {
        let component = self.components[other.satellite as usize];
        let links = self.in_view[end].iter().copied();
        links.filter(move |link| self.components[link.satellite as usize] == component)
    }

    /// Whether an end may keep the satellite of `link`.
    pub fn may_keep(&self, end: usize, link: Link) -> bool {
        self.keeps_lost_satellite
            || self.in_view[end].binary_search_by_key(&link.satellite, |l| l.satellite).is_ok()
    }
}

//! Handover policies: which satellite each end of a path uses. One file each, one table.

mod immediate;
mod leoem;

use skyhop_units::Instant;

use crate::request::UnknownName;
use crate::route::Graph;

/// A policy that can be asked for.
#[derive(Debug, Clone, Copy)]
pub struct PolicyEntry {
    /// The name in scenarios and path files.
    pub name: &'static str,
    /// What it does, in a line.
    pub summary: &'static str,
    /// Makes one for a path that begins.
    pub make: fn() -> Box<dyn HandoverPolicy>,
}

/// All policies.
pub const POLICIES: [PolicyEntry; 2] = [
    PolicyEntry {
        name: "leoem",
        summary: "the nearest satellite, chosen again every 16 s or when the path breaks",
        make: || Box::new(leoem::Leoem::default()),
    },
    PolicyEntry {
        name: "immediate",
        summary: "at each step the satellites of the shortest path, as Hypatia does",
        make: || Box::new(immediate::Immediate::default()),
    },
];

/// The policy with this name.
///
/// # Errors
/// There is none; the error names those there are.
pub fn policy(name: &str) -> Result<PolicyEntry, UnknownName> {
    let unknown = || UnknownName::new("handover policy", name, &POLICIES.map(|entry| entry.name));
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
}

/// What a policy sees at a step.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    /// The time since the path began.
    pub now: Instant,
    /// The links that each end could have now, in ascending order of satellites.
    pub in_view: [&'a [Link]; 2],
    /// Whether a satellite may be kept that is no longer in view.
    pub keeps_lost_satellite: bool,
    /// The part of the network that each satellite belongs to: a route exists within a part.
    pub parts: &'a [u32],
    /// The links between satellites (and gateways), with their delays.
    pub graph: &'a Graph,
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

    /// Whether an end may go on using a satellite.
    pub fn may_keep(&self, end: usize, link: Link) -> bool {
        self.keeps_lost_satellite
            || self.in_view[end].binary_search_by_key(&link.satellite, |l| l.satellite).is_ok()
    }
}

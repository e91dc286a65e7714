//! Events: changes of the path from one frame to the next.

use skyhop_model::PathEventKind;
use skyhop_units::{Duration, Instant};

use crate::OutageModel;
use crate::outage::Draw;
use crate::trace::{Frame, PathEvent};

/// Rules by which differences between frames become events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRules {
    /// Model of the outage of an end handover.
    pub outage: OutageModel,
    /// Outage of a link in the middle of the path that goes down.
    pub intermediate_outage: Duration,
    /// Links in the middle of the path that go down when the route changes.
    pub teardown: LinkTeardown,
    /// Seed of random outages.
    pub seed: u64,
}

/// Choice of the links in the middle of a path that go down when the path's route leaves or joins them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkTeardown {
    /// Links between a satellite and a gateway. Inter-satellite links and fibre stay up, and a frame in which only
    /// they differ is a reroute.
    GatewayLinks {
        /// Number of satellites: nodes from this number on are on the ground.
        satellites: u32,
    },
    /// All links at which the route differs, as in LeoEM's emulator, including its bug: if the first satellite of the
    /// new route was further along the old one, the last link in the middle goes down, because LeoEM indexes its
    /// array with -1.
    AllAsLeoem,
}

impl EventRules {
    /// Return the events at the beginning of `frame`, given the previous frame, in the order of the hops.
    ///
    /// A `lost` event has an outage of zero: the path is down until the `restored` event anyway.
    pub fn between(&self, previous: Option<&Frame>, frame: &Frame) -> Vec<PathEvent> {
        let was = previous.filter(|previous| previous.delay.is_some());
        let event = |kind, hop, outage| PathEvent { at: frame.at, kind, hop, outage };
        match (previous, was, frame.delay) {
            (None, _, Some(_)) | (Some(_), None, None) => Vec::new(),
            (_, _, None) => vec![event(PathEventKind::Lost, None, Duration::ZERO)],
            (Some(_), None, Some(_)) => {
                let outage = self.outage.restored(self.end_delays(frame), self.draw(frame, 0));
                vec![event(PathEventKind::Restored, None, outage)]
            }
            (_, Some(previous), Some(_)) if previous.nodes == frame.nodes => Vec::new(),
            (_, Some(previous), Some(_)) => self.changes(previous, frame),
        }
    }

    /// Events between two frames with different routes.
    fn changes(&self, previous: &Frame, frame: &Frame) -> Vec<PathEvent> {
        let mut events = Vec::new();
        let last_hop = frame.hop_delays.len() as u16 - 1;
        let [was, is] = [previous, frame].map(end_satellites);
        let [old, new] = [previous, frame].map(|frame| self.end_delays(frame));
        let end = |end: usize, hop| PathEvent {
            at: frame.at,
            kind: PathEventKind::End,
            hop: Some(hop),
            outage: self.outage.handover(old[end], new[end], self.draw(frame, end as u64)),
        };
        if was[0] != is[0] {
            events.push(end(0, 0));
        }
        events.extend(self.torn_down_hops(previous, frame).map(|hop| PathEvent {
            at: frame.at,
            kind: PathEventKind::Intermediate,
            hop: Some(hop),
            outage: self.intermediate_outage,
        }));
        // The end `to` of an access path is on the ground and has no satellite.
        if was[1] != is[1] && self.is_satellite(is[1]) {
            events.push(end(1, last_hop));
        }
        if events.is_empty() {
            events.push(reroute(frame.at));
        }
        events
    }

    /// One-way delays between each end and its satellite. If the last end has no satellite, both
    /// delays are the first end's.
    fn end_delays(&self, frame: &Frame) -> [Duration; 2] {
        let (first, last) = (frame.hop_delays[0], frame.hop_delays[frame.hop_delays.len() - 1]);
        [first, if self.is_satellite(end_satellites(frame)[1]) { last } else { first }]
    }

    fn is_satellite(&self, node: i32) -> bool {
        match self.teardown {
            LinkTeardown::AllAsLeoem => true,
            LinkTeardown::GatewayLinks { satellites } => node < satellites as i32,
        }
    }

    fn draw(&self, frame: &Frame, end: u64) -> Draw {
        Draw::new(self.seed, frame.at, end)
    }

    fn torn_down_hops<'a>(
        &'a self,
        previous: &Frame,
        frame: &'a Frame,
    ) -> impl Iterator<Item = u16> + 'a {
        let wraps = self.teardown == LinkTeardown::AllAsLeoem;
        let broken = broken_links(middle(&previous.nodes), middle(&frame.nodes), wraps);
        let is_torn_down = move |hop: &u16| match self.teardown {
            LinkTeardown::AllAsLeoem => true,
            LinkTeardown::GatewayLinks { satellites } => {
                let hop = usize::from(*hop);
                let ends = &frame.nodes[hop..=hop + 1];
                ends.iter().filter(|node| **node >= satellites as i32).count() == 1
            }
        };
        // The first link in the middle is hop 1: hop 0 is the link between the end and its satellite.
        (1..).zip(broken).filter(|(_, broken)| *broken).map(|(hop, _)| hop).filter(is_torn_down)
    }
}

/// Event of a change of inter-satellite links only.
fn reroute(at: Instant) -> PathEvent {
    PathEvent { at, kind: PathEventKind::Reroute, hop: None, outage: Duration::ZERO }
}

/// Return for each link of the new route whether the new route leaves or joins the old one there.
/// `old` and `new` are the nodes of both routes without their ends.
///
/// The rule is that of LeoEM's emulator. The new route leaves the old one at a link into the first node that the old
/// route does not have; it joins the old one at a link into a node that the old route has, but not as the next one.
/// No link leads into the first node of `new`; if the rule applies to that node, the last link counts with `wraps`,
/// and no link without it.
fn broken_links(old: &[i32], new: &[i32], wraps: bool) -> Vec<bool> {
    let mut broken = vec![false; new.len().saturating_sub(1)];
    let place = |node: i32| old.iter().position(|old| *old == node);
    let mut expected = 0;
    for (index, node) in new.iter().enumerate() {
        let differs = match place(*node) {
            Some(found) => {
                let jumped = found != expected;
                expected = found + 1;
                jumped
            }
            None => index > 0 && place(new[index - 1]).is_some(),
        };
        let link = if index > 0 { index - 1 } else { broken.len().wrapping_sub(1) };
        let counts = differs && (index > 0 || wraps);
        if let Some(broken) = broken.get_mut(link).filter(|_| counts) {
            *broken = true;
        }
    }
    broken
}

/// Nodes of a route without its two ends.
fn middle(nodes: &[i32]) -> &[i32] {
    &nodes[1..nodes.len() - 1]
}

/// First and last satellite of a route.
fn end_satellites(frame: &Frame) -> [i32; 2] {
    [frame.nodes[1], frame.nodes[frame.nodes.len() - 2]]
}

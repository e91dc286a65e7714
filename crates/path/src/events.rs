//! What changes from one frame to the next.

use skyhop_model::PathEventKind;
use skyhop_units::{Duration, Instant};

use crate::OutageModel;
use crate::outage::Draw;
use crate::trace::{Frame, PathEvent};

/// How differences between frames become events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventRules {
    /// How long an end handover takes the link down.
    pub outage: OutageModel,
    /// Which links in the middle are dismantled when the route changes.
    pub dismantled: Dismantled,
    /// The seed of outages that are drawn.
    pub seed: u64,
}

/// Which links in the middle of a path are dismantled when its route leaves or joins them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dismantled {
    /// Those between a satellite and a gateway: nodes from this number on are on the ground.
    /// Inter-satellite links and fibre are kept, and a frame in which only they differ is a reroute.
    GatewayLinks {
        /// The number of satellites.
        satellites: u32,
    },
    /// Every link where the route differs, as LeoEM's emulator takes them down; with its slip: if
    /// the first satellite of the new route was further along the old one, the last link in the
    /// middle goes down (its array is indexed with -1).
    AllAsLeoem,
}

impl EventRules {
    /// The events with which `frame` begins, given the frame before; in the order of the hops.
    ///
    /// `lost` has no outage of its own: there is no path until `restored`.
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

    /// The events between two frames with different routes.
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
        events.extend(self.dismantled_hops(previous, frame).map(|hop| PathEvent {
            at: frame.at,
            kind: PathEventKind::Intermediate,
            hop: Some(hop),
            outage: Duration::ZERO,
        }));
        // An access path's other end is on the ground and has no satellite to change.
        if was[1] != is[1] && self.is_satellite(is[1]) {
            events.push(end(1, last_hop));
        }
        if events.is_empty() {
            events.push(reroute(frame.at));
        }
        events
    }

    /// The one-way delays between the ends and their satellites; of the first twice where the last
    /// has none.
    fn end_delays(&self, frame: &Frame) -> [Duration; 2] {
        let (first, last) = (frame.hop_delays[0], frame.hop_delays[frame.hop_delays.len() - 1]);
        [first, if self.is_satellite(end_satellites(frame)[1]) { last } else { first }]
    }

    fn is_satellite(&self, node: i32) -> bool {
        match self.dismantled {
            Dismantled::AllAsLeoem => true,
            Dismantled::GatewayLinks { satellites } => node < satellites as i32,
        }
    }

    fn draw(&self, frame: &Frame, end: u64) -> Draw {
        Draw::new(self.seed, frame.at, end)
    }

    fn dismantled_hops<'a>(
        &'a self,
        previous: &Frame,
        frame: &'a Frame,
    ) -> impl Iterator<Item = u16> + 'a {
        let wraps = self.dismantled == Dismantled::AllAsLeoem;
        let broken = broken_links(middle(&previous.nodes), middle(&frame.nodes), wraps);
        let is_dismantled = move |hop: &u16| match self.dismantled {
            Dismantled::AllAsLeoem => true,
            Dismantled::GatewayLinks { satellites } => {
                let hop = usize::from(*hop);
                let ends = &frame.nodes[hop..=hop + 1];
                ends.iter().filter(|node| **node >= satellites as i32).count() == 1
            }
        };
        // The first link in the middle is hop 1: hop 0 is the user's.
        (1..).zip(broken).filter(|(_, broken)| *broken).map(|(hop, _)| hop).filter(is_dismantled)
    }
}

/// A change of inter-satellite links only.
fn reroute(at: Instant) -> PathEvent {
    PathEvent { at, kind: PathEventKind::Reroute, hop: None, outage: Duration::ZERO }
}

/// For each link of the new route's middle, whether the old route's middle is left or joined there.
///
/// This is the rule of LeoEM's emulator: a link into the first node that the old route did not have
/// is where it is left; a link into a node that the old route had, but not next, is where it is
/// joined again. `wraps` says what happens if that node is the first: the last link counts, or none.
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

/// A route without its users.
fn middle(nodes: &[i32]) -> &[i32] {
    &nodes[1..nodes.len() - 1]
}

/// The first and the last satellite of a route.
fn end_satellites(frame: &Frame) -> [i32; 2] {
    [frame.nodes[1], frame.nodes[frame.nodes.len() - 2]]
}

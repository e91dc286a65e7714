//! Kinds of events in events.parquet.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::UnknownName;

words! {
    /// Change of a path.
    PathEventKind ["kind of path event"] {
        /// An end changed its satellite.
        End = "end",
        /// An intermediate link of the path was left or joined; packets on it are lost.
        Intermediate = "intermediate",
        /// The route between satellites changed, without loss.
        Reroute = "reroute",
        /// The path was lost: from here on there is none.
        Lost = "lost",
        /// A path exists again.
        Restored = "restored",
    }
}

impl PathEventKind {
    /// Whether the path continues over other nodes.
    pub const fn is_handover(self) -> bool {
        matches!(self, Self::End | Self::Intermediate | Self::Reroute)
    }

    /// Iterate over the kinds that are handovers.
    pub fn handovers() -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(|kind| kind.is_handover())
    }
}

words! {
    /// Reaction of a congestion control to an announced handover, or to missing decisions: `enum skyhop_phase_kind`.
    #[repr(u64)]
    PhaseKind ["phase"] {
        /// The window is held: it is not reduced.
        Hold = "hold",
        /// The window is closed before the handover, so that the queue drains.
        Drain = "drain",
        /// The window stays closed after the handover, to measure the new path's RTT.
        ProbeRtt = "probe-rtt",
        /// No decision came for too long, so the base algorithm decides from the phase's end on.
        Fallback = "fallback",
    }
}

words! {
    /// Kind of an announced handover: `enum skyhop_handover_kind`.
    #[repr(u32)]
    HandoverKind ["kind of handover"] {
        /// A terminal changes its satellite.
        End = "end",
        /// The route between the ends' satellites changes.
        Intermediate = "intermediate",
        /// The source of the announcement does not know the kind.
        Unknown = "unknown",
    }
}

/// Kind of a row of events.parquet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventKind {
    /// Change of the path.
    Path(PathEventKind),
    /// Change that the scenario's `[[change]]` makes.
    #[default]
    Change,
    /// Loss of a packet.
    Loss,
    /// Announcement of a handover.
    Announcement,
    /// Reaction of a congestion control to a handover.
    Phase(PhaseKind),
}

impl EventKind {
    /// Name of the kind in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Path(kind) => kind.name(),
            Self::Change => "change",
            Self::Loss => "loss",
            Self::Announcement => "announcement",
            Self::Phase(kind) => kind.name(),
        }
    }

    /// Iterate over all kinds, in the order in which tables show them.
    pub fn all() -> impl Iterator<Item = Self> {
        let path = PathEventKind::ALL.iter().copied().map(Self::Path);
        let phases = PhaseKind::ALL.iter().copied().map(Self::Phase);
        path.chain([Self::Change, Self::Loss, Self::Announcement]).chain(phases)
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl std::str::FromStr for EventKind {
    type Err = UnknownName;
    fn from_str(word: &str) -> Result<Self, UnknownName> {
        let known = || Self::all().map(Self::name).collect::<Vec<_>>();
        Self::all()
            .find(|kind| kind.name() == word)
            .ok_or_else(|| UnknownName::new("kind of event", word, &known()))
    }
}

impl Serialize for EventKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for EventKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_kind_of_event_has_a_name_of_its_own_and_is_found_by_it() {
        let names: BTreeSet<&str> = EventKind::all().map(EventKind::name).collect();
        assert_eq!(names.len(), EventKind::all().count());
        for kind in EventKind::all() {
            assert_eq!(kind.name().parse(), Ok(kind));
        }
    }
}

//! `[path]`: its kinds, and the keys of each.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize};
use skyhop_model::{Compat, DuringOutage, End, Relay, ShellLinks};
use skyhop_path::{PathTrace, default_intermediate_outage};
use skyhop_units::{Angle, Duration, Length, Ratio, UtcInstant};

use crate::by_kind;
use crate::keys::{Kinds, read_parts};
use crate::types::is_zero;

/// `[path]`: source of the delay, and of the outages and handovers that go with it.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PathSection {
    /// Treatment of packets during an outage: "drop" (packets are lost) or "hold" (the queue stops
    /// sending until the outage is over). Default: "drop"; "hold" on paths with an access profile, and on path files
    /// drawn from one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub during_outage: Option<DuringOutage>,
    /// End at which the user's terminal is, "from" or "to", on paths with a terminal at one end only (access, starlink,
    /// path files). A path file with its terminal at the other end is mirrored. Default: that of the path file; "from"
    /// on other paths.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dish: Option<End>,
    /// Kind of path, with the keys of that kind.
    #[serde(flatten, serialize_with = "by_kind::serialize")]
    pub kind: PathKind,
}

impl<'de> Deserialize<'de> for PathSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, |keys| {
            let (during_outage, dish) = (keys.key("during_outage")?, keys.key("dish")?);
            let mut kind: PathKind = keys.kind()?;
            if let PathKind::Constellation(path) = &mut kind {
                path.outage = Some(path.outage().to_owned());
                let resolved = path.intermediate_outage();
                if resolved > Duration::ZERO {
                    path.intermediate_outage = Some(resolved);
                }
            }
            let during_outage = during_outage.or(kind.profile().map(|_| DuringOutage::Hold));
            Ok(Self { during_outage, dish, kind })
        })
    }
}

impl PathSection {
    /// Treatment of packets during the outages of `trace`, a path that this section describes.
    pub(crate) fn during_outage_of(&self, trace: &PathTrace) -> DuringOutage {
        let drawn = trace.header.access.is_some();
        self.during_outage.unwrap_or(if drawn { DuringOutage::Hold } else { DuringOutage::Drop })
    }

    /// Return a path of constant round trip `rtt` that keeps this path's ends, start and outage behaviour.
    pub(crate) fn fixed(&self, rtt: Duration) -> Self {
        let (from, to, start) = match &self.kind {
            PathKind::Constellation(path) => (path.from.clone(), path.to.clone(), path.start),
            PathKind::Fixed(path) => (path.from.clone(), path.to.clone(), path.start),
            PathKind::Access(path) => (path.from.clone(), path.to.clone(), path.start),
            PathKind::Trace(_) => (None, None, None),
        };
        let kind = PathKind::Fixed(FixedPath { rtt: Some(rtt), jitter: None, from, to, start });
        Self { kind, dish: None, during_outage: self.during_outage }
    }
}

/// Kind of path: where its delay comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(tag = "kind", transform = by_kind::optional_kind::<Self>)]
pub enum PathKind {
    /// Path computed from a constellation's orbits.
    Constellation(Box<ConstellationPath>),
    /// Path with a constant round trip, apart from `[[change]]` and `jitter`.
    Fixed(FixedPath),
    /// Path read from a path file.
    Trace(TracePath),
    /// Path drawn from an access profile alone, without satellites.
    Access(AccessPath),
}

impl PathKind {
    /// Name of the access profile from which the path is drawn.
    pub fn profile(&self) -> Option<&str> {
        match self {
            Self::Constellation(path) => path.profile(),
            Self::Access(path) => path.profile.as_deref(),
            Self::Fixed(_) | Self::Trace(_) => None,
        }
    }

    /// Random variation of the round trip.
    pub(crate) fn jitter(&self) -> Option<&JitterKeys> {
        match self {
            Self::Constellation(path) => path.jitter.as_ref(),
            Self::Fixed(path) => path.jitter.as_ref(),
            Self::Access(path) => path.jitter.as_ref(),
            Self::Trace(_) => None,
        }
    }
}

impl Kinds for PathKind {
    const NOUN: &'static str = "a path";
    const DEFAULT: Option<&'static str> = Some("constellation");
}

/// Keys of `[path]` with kind = "constellation".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ConstellationPath {
    /// Constellation: a name from `skyhop list constellations`, "geo:LONGITUDE" (degrees east, -180 to 360),
    /// a TOML file, or a file or URL of element sets (TLE, OMM).
    pub constellation: String,
    /// Place of one end: a site's name, a city ("New York"), or "lat,lon[,alt_m]" in degrees and metres.
    /// Required.
    pub from: Option<String>,
    /// Place of the other end, in the forms of `from`. Required.
    pub to: Option<String>,
    /// How satellites join the two ends: "isl" (inter-satellite links), "bent-pipe" (up and down at
    /// gateways), "access" (to a point of presence), "starlink" (the same with an access profile) or "geo" (one
    /// geostationary satellite).
    pub relay: Relay,
    /// Access profile that adds waits, holes, losses and rates as measured, for the relays "access" and "starlink".
    /// Default: none for "access", that named "starlink" for "starlink".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access: Option<AccessKeys>,
    /// Random variation of the round trip about the computed one. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterKeys>,
    /// Handover policy from `skyhop list handovers`. Default: "shortest-grid"; "leoem" with compat = "leoem",
    /// "immediate" with compat = "hypatia".
    pub handover: Option<String>,
    /// Duration of the outage when an end of the path changes its satellite: "leoem" or "starlink" (models),
    /// "none", or a duration ("80 ms"). Default: "leoem"; "starlink" for relay = "access"; "none" with an access
    /// profile, which has holes of its own and allows no other value.
    pub outage: Option<String>,
    /// Duration of the outage when a link in the middle of the path goes down at an intermediate handover. Default:
    /// 25 ms with compat = "leoem", as long as its emulator takes the link's interfaces down; 0 s otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intermediate_outage: Option<Duration>,
    /// UTC time at which the path begins, as in 2026-01-01T12:00:00Z. Default: the constellation's epoch; for
    /// element sets the median of their epochs.
    pub start: Option<UtcInstant>,
    /// Time between computed frames of the path; above 0 s.
    pub step: Duration,
    /// Gateways: a list from `skyhop list sites`, or a CSV file with the columns name, latitude_deg and
    /// longitude_deg. Used by the relays that have gateways.
    pub gateways: String,
    /// Compatibility mode that reproduces the conventions of another simulator, for comparison with
    /// that simulator: "none", "leoem" or "hypatia".
    pub compat: Compat,
    /// Satellites to use: "all", or conditions such as "name=STARLINK-1*; shell=0,2; plane=0-35".
    /// Conditions on names and planes require element sets.
    pub satellites: String,
    /// Lowest elevation above the horizon at which sites use satellites, 0 to less than 90 deg. Default: the
    /// minimum elevation of the constellation.
    pub minimum_elevation: Option<Angle>,
    /// Smallest angle between a used satellite and the geostationary arc, as sites see them ("18 deg").
    /// Default: no avoidance.
    pub geo_avoidance: Option<Angle>,
    /// Largest difference between the path's start and the epoch of an element set; sets whose
    /// epochs are further from the start are not used.
    pub stale_after: Duration,
    /// Whether the last plane of a shell has inter-satellite links to the first.
    pub isl_seam: bool,
    /// Minimum height above the ground of inter-satellite links; lower ones are not used.
    pub isl_clearance: Length,
    /// Whether packets of an access path may go over inter-satellite links to a satellite with a gateway in view, for the
    /// relays "access" and "starlink". Without it, there is a path only where a satellite sees the terminal and a gateway.
    pub isl_backhaul: bool,
    /// Inter-satellite links between shells: "apart" (none) or "nearest" (from each satellite to the one of the next higher
    /// shell that is nearest now and five minutes later, for as long as it is within 2500 km).
    #[serde(skip_serializing_if = "ShellLinks::is_apart")]
    pub isl_shells: ShellLinks,
    /// Points of presence, for relay = "access": a list's name or a CSV file, in the form of `gateways`.
    pub pops: String,
    /// Length of terrestrial fibre divided by the great-circle distance, for relay = "access".
    pub fibre_stretch: f64,
    /// Time between choices of satellites, for handover policies on a grid in UTC.
    pub grid_period: Duration,
    /// Second of each UTC minute at which the first choice falls, for handover policies on a grid.
    pub grid_offset: Duration,
}

impl Default for ConstellationPath {
    fn default() -> Self {
        Self {
            constellation: "starlink-shell1".to_owned(),
            from: None,
            to: None,
            relay: Relay::default(),
            access: None,
            jitter: None,
            handover: None,
            outage: None,
            intermediate_outage: None,
            start: None,
            step: Duration::from_secs(1),
            gateways: "starlink-gateways".to_owned(),
            compat: Compat::default(),
            satellites: "all".to_owned(),
            minimum_elevation: None,
            geo_avoidance: None,
            // Two weeks: SGP4 is off by kilometres per day, and an operator's manoeuvres add to that.
            stale_after: Duration::from_secs(14 * 86_400),
            isl_seam: true,
            isl_clearance: Length::from_kilometres(80.0),
            isl_backhaul: false,
            isl_shells: ShellLinks::default(),
            pops: "starlink-pops".to_owned(),
            fibre_stretch: 1.4,
            grid_period: STARLINK_PERIOD,
            grid_offset: STARLINK_OFFSET,
        }
    }
}

impl ConstellationPath {
    /// Name or duration of the outage model.
    pub(crate) fn outage(&self) -> &str {
        match (&self.outage, self.relay) {
            (Some(outage), _) => outage,
            (None, _) if self.profile().is_some() => "none",
            (None, Relay::Access) => "starlink",
            (None, _) => "leoem",
        }
    }

    /// Duration of the outage at an intermediate handover.
    pub(crate) fn intermediate_outage(&self) -> Duration {
        self.intermediate_outage.unwrap_or_else(|| default_intermediate_outage(self.compat))
    }

    /// Name of the access profile.
    pub(crate) fn profile(&self) -> Option<&str> {
        match (&self.access, self.relay) {
            (Some(keys), _) => Some(&keys.profile),
            (None, Relay::Starlink) => Some(Relay::Starlink.name()),
            (None, _) => None,
        }
    }
}

/// `access` of a path over satellites.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct AccessKeys {
    /// Profile: a name from `skyhop list access`, or a TOML file made by `skyhop access fit`.
    pub profile: String,
}

/// Keys of `[path]` with kind = "access".
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccessPath {
    /// Profile: a name from `skyhop list access`, or a TOML file made by `skyhop access fit`. Required.
    pub profile: Option<String>,
    /// Random variation of the round trip about the drawn one. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterKeys>,
    /// Display name of one end. Default: "from".
    pub from: Option<String>,
    /// Display name of the other end. Default: "to".
    pub to: Option<String>,
    /// UTC time at which the path begins. Default: 2019-12-01T00:00:00Z.
    pub start: Option<UtcInstant>,
}

/// Starlink's reallocation grid: satellites are chosen at seconds 12, 27, 42 and 57 of every UTC minute.
pub(super) const STARLINK_PERIOD: Duration = Duration::from_secs(15);
pub(crate) const STARLINK_OFFSET: Duration = Duration::from_secs(12);

/// Keys of `[path]` with kind = "fixed".
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FixedPath {
    /// Round-trip time without queueing. Required.
    pub rtt: Option<Duration>,
    /// Random variation of the round trip about `rtt`. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jitter: Option<JitterKeys>,
    /// Display name of one end. Default: "from".
    pub from: Option<String>,
    /// Display name of the other end. Default: "to".
    pub to: Option<String>,
    /// UTC time at which the path begins. Default: 2019-12-01T00:00:00Z.
    pub start: Option<UtcInstant>,
}

/// `jitter` of a path: random variation of its round trip, half of it in each direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields, expecting = "a table")]
pub struct JitterKeys {
    /// Time between two values of the round trip; at least 1 ms.
    pub every: Duration,
    /// Largest deviation below the path's round trip; at most the round trip.
    pub below: Duration,
    /// Largest deviation above the path's round trip; small deviations are more likely than large ones.
    pub above: Duration,
    /// Time constant of the autocorrelation (time in which it falls to 1/e); 0 s makes the values
    /// independent.
    pub correlation: Duration,
    /// Probability that a spike begins in a given second.
    pub spikes_per_second: Ratio,
    /// Smallest addition of a spike to the round trip.
    pub spike_from: Duration,
    /// Largest addition of a spike to the round trip; at least `spike_from`.
    pub spike_to: Duration,
    /// Duration of a spike; at most 60 s.
    pub spike_lasts: Duration,
}

impl Default for JitterKeys {
    fn default() -> Self {
        Self {
            every: Duration::from_millis(50),
            below: Duration::ZERO,
            above: Duration::ZERO,
            correlation: Duration::ZERO,
            spikes_per_second: Ratio::ZERO,
            spike_from: Duration::ZERO,
            spike_to: Duration::ZERO,
            spike_lasts: Duration::ZERO,
        }
    }
}

/// Keys of `[path]` with kind = "trace".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TracePath {
    /// Path file (Parquet), looked up relative to the scenario file first. Required.
    pub file: Option<String>,
    /// Whether the path starts again at its end until the run ends (as mahimahi does); otherwise its last
    /// state persists.
    #[serde(rename = "loop", default, skip_serializing_if = "std::ops::Not::not")]
    pub repeats: bool,
    /// Time of the path file at which the run begins, such as another time of the day; below the file's duration.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub offset: Duration,
}

//! `[link]`, `[links]` and `[[change]]`.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use skyhop_link::{DamaConfig, Loss, QueueDiscipline};
use skyhop_model::layered;
use skyhop_units::{Bytes, Duration, QueueLimit, Rate};

use crate::keys::{KeyError, Keys, read_parts};
use crate::types::PathSection;

layered! {
    /// Keys of one direction of a link.
    LinkKeys => LinkValues {
        /// Rate on the wire; each IP packet counts 14 bytes more (Ethernet header). Above 0.
        rate: Rate = Rate::from_bits_per_second(150_000_000),
        /// Queue capacity: "1000 packets", "1.5 MB", a time at the link's mean rate ("260 ms"), or a multiple of
        /// the bandwidth-delay product ("1 BDP"): the mean rate times the mean base RTT of the whole path or, for a
        /// link of `[links]`, of the longest route that crosses it.
        queue: QueueLimit = QueueLimit::Bdp(1.0),
        /// Queue discipline: a name from `skyhop list qdiscs`, or a table with its parameters, such as
        /// { kind = "codel", target = "5 ms" }.
        qdisc: QueueDiscipline = QueueDiscipline::default(),
        /// Probability that a packet is lost after the queue, independently of other packets; or losses in bursts,
        /// such as { kind = "gilbert-elliott", good = "10 s", bad = "200 ms" }. Applies to the direction from -> to
        /// only, unless `back` has its own `loss`.
        loss: Loss = Loss::NONE,
        /// Whether packets sent after a fall of the delay may overtake those sent before it, as with netem.
        /// Default: false, only packets on a new route overtake.
        #[serde(skip_serializing_if = "Option::is_none")]
        reorder: Option<bool> = None,
        /// Token-bucket burst, as of tbf: bytes that may leave at once after a pause, but no more than
        /// `rate` would have carried during the pause. Default: no burst.
        #[serde(skip_serializing_if = "Option::is_none")]
        burst: Option<Bytes> = None,
        /// Demand assignment (DAMA) of this direction's capacity, as over a geostationary satellite's return channel:
        /// packets leave in frames, and the terminal asks for capacity. Default: none. Applies to the direction
        /// from -> to only, unless `back` has its own `dama`.
        #[serde(skip_serializing_if = "Option::is_none")]
        dama: Option<DamaConfig> = None,
    }
}

/// `[link]`: bottleneck link; its own keys describe the direction from -> to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct LinkSection {
    /// Keys of the direction from -> to.
    #[serde(flatten, serialize_with = "serialize_link_values")]
    #[schemars(with = "LinkValues")]
    pub keys: LinkKeys,
    /// Keys in which the direction to -> from differs. Default: the same as from -> to, but without loss and `dama`.
    pub back: Option<LinkKeys>,
    /// Place of the queues: "path" (one queue for all hops together) or "per-hop" (one queue for
    /// each hop). Only `[link]` has this key.
    #[serde(skip_serializing_if = "Queues::is_default")]
    #[schemars(default)]
    pub queues: Queues,
    /// Rate of the path's first and last hop, in both directions, with queues = "per-hop". Default: `rate`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_rate: Option<Rate>,
}

/// Place of the queues on a path.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Queues {
    /// One queue for all hops together.
    #[default]
    Path,
    /// One queue for each hop. When a hop ceases to exist, the packets in its queue are lost.
    PerHop,
}

impl Queues {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

fn serialize_link_values<S: Serializer>(keys: &LinkKeys, serializer: S) -> Result<S::Ok, S::Error> {
    keys.values().serialize(serializer)
}

impl LinkSection {
    fn from_keys(keys: &mut Keys) -> Result<Self, KeyError> {
        let (part, back) = (keys.part()?, keys.key("back")?);
        let queues: Option<Queues> = keys.key("queues")?;
        let (queues, end_rate) = (queues.unwrap_or_default(), keys.key("end_rate")?);
        Ok(Self { keys: part, back, queues, end_rate })
    }
}

impl<'de> Deserialize<'de> for LinkSection {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, Self::from_keys)
    }
}

/// `[links.NAME]`: link in addition to the one of `[path]` and `[link]`, for the flows whose `via`
/// contains its name.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ExtraLink {
    /// Round trip of the link without queueing, half of it each way. Default: 0 s. Not together with `path`.
    pub rtt: Option<Duration>,
    /// Time-varying path of the link, with the keys of `[path]`, in place of `rtt`.
    pub path: Option<PathSection>,
    /// Keys of `[link]`, except `queues` and `end_rate`.
    #[serde(flatten)]
    pub link: LinkSection,
}

impl<'de> Deserialize<'de> for ExtraLink {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, |keys| {
            let (rtt, path) = (keys.key("rtt")?, keys.key("path")?);
            Ok(Self { rtt, path, link: LinkSection::from_keys(keys)? })
        })
    }
}

/// `[[change]]`: change of a link or of a flow's route at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table")]
pub struct Change {
    /// Time of the change, counted from the run's start; less than the run's duration.
    pub at: Duration,
    /// Name of the link that changes: one of `[links]`, or "path". Default: "path", the link of `[path]` and
    /// `[link]`.
    pub link: Option<String>,
    /// Index, counted from 0, of the `[[flow]]` that takes another route. In place of `link`, and together
    /// with `via`.
    pub flow: Option<u32>,
    /// New route of the flow, as names of links; packets in flight stay on the old one. Together with `flow`.
    pub via: Option<Vec<String>>,
    /// New round trip without queueing. It applies from `at` on or, with `outage`, from the end of
    /// the outage on.
    pub rtt: Option<Duration>,
    /// New rate. It applies from `at` on or, with `outage`, from the end of the outage on.
    pub rate: Option<Rate>,
    /// New loss, in the forms of `link.loss`: a probability also ends bursts. It applies from `at` on or, with
    /// `outage`, from the end of the outage on.
    pub loss: Option<Loss>,
    /// Duration of an outage of the link that begins at `at`.
    pub outage: Option<Duration>,
}

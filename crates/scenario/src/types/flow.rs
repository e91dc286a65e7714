//! `[[flow]]`: its kinds, and `[tcp]`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use skyhop_app::{App, Bulk, Call, Probe, TcpKeys, TcpOptions};
use skyhop_model::{
    CcLanguage, Dscp, End, PATH_LINK, POLICY_CC, cc_language, one_line, shipped_card,
};
use skyhop_units::{Bytes, Duration, did_you_mean};

use crate::by_kind;
use crate::keys::{KeyError, Keys, Kinds, read_parts};
use crate::types::is_zero;

/// `[[flow]]`: one sender and its receiver.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[schemars(transform = allow_cc_parameters)]
pub struct Flow {
    /// Keys that all kinds of flows have.
    #[serde(flatten)]
    pub common: FlowKeys,
    /// Kind of flow, with the keys of that kind.
    #[serde(flatten, serialize_with = "by_kind::serialize")]
    pub kind: FlowKind,
    /// Parameters of a TCP flow's congestion control, written `NAME.PARAMETER = value` in the flow.
    #[serde(flatten)]
    #[schemars(skip)]
    pub parameters: BTreeMap<String, Value>,
}

impl<'de> Deserialize<'de> for Flow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        read_parts(deserializer, |keys| {
            let (common, mut kind) = (keys.part()?, keys.kind()?);
            let parameters = match &mut kind {
                FlowKind::Tcp(tcp) => cc_parameters(keys, tcp)?,
                FlowKind::Probe(_) | FlowKind::Call(_) => BTreeMap::new(),
            };
            Ok(Self { common, kind, parameters })
        })
    }
}

/// Take all tables that have not been taken, as parameters of the congestion control of `tcp`. The key `policy` may
/// change that congestion control.
pub(super) fn cc_parameters(
    keys: &mut Keys,
    tcp: &mut TcpFlowKeys,
) -> Result<BTreeMap<String, Value>, KeyError> {
    let policy = keys.key::<Policy>(POLICY_CC)?;
    let mut tables = keys.other_tables();
    tables.extend(policy.map(|policy| policy.apply_to(tcp)).transpose()?.flatten());
    let json = |(name, table)| Some((name, serde_json::to_value(table).ok()?));
    Ok(tables.into_iter().filter_map(json).collect())
}

/// Value of a flow's key `policy`: a card's name or file, or a table with the parameters of
/// `cc/policy.c` and optionally a card.
#[derive(Deserialize)]
#[serde(untagged, expecting = "expected a card's file, or a table with it")]
enum Policy {
    Card(String),
    Table(toml::Table),
}

impl Policy {
    /// Set the flow's congestion control to the card, if one is given, and return the parameters that remain.
    fn apply_to(self, tcp: &mut TcpFlowKeys) -> Result<Option<(String, toml::Value)>, KeyError> {
        let (card, parameters) = match self {
            Self::Card(card) => (Some(card), toml::Table::new()),
            Self::Table(mut table) => match table.remove("card") {
                Some(toml::Value::String(card)) => (Some(card), table),
                Some(_) => return Err(wrong_policy(".card", "expected a card's file".to_owned())),
                None => (None, table),
            },
        };
        if let Some(card) = card {
            if tcp.cc != POLICY_CC {
                let what = format!("is for cc = \"{POLICY_CC}\", and the flow's is {}", tcp.cc);
                return Err(wrong_policy("", what));
            }
            let ours: Vec<&str> =
                skyhop_ccfile::policy_cards().iter().map(|(name, _)| *name).collect();
            if ours.contains(&card.as_str()) {
                tcp.cc = shipped_card(&card);
            } else if cc_language(&card) == Some(CcLanguage::Card) {
                tcp.cc = card;
            } else {
                let hint = did_you_mean(&card, ours.iter().copied());
                let (card, ours) = (one_line(&card), ours.join(", "));
                let what = format!(
                    "is `{card}`{hint}; expected a card, a file in .toml, or one of {ours}"
                );
                return Err(wrong_policy("", what));
            }
        }
        let table = (POLICY_CC.to_owned(), toml::Value::Table(parameters));
        Ok(Some(table).filter(|(_, table)| table.as_table().is_some_and(|table| !table.is_empty())))
    }
}

fn wrong_policy(below: &str, what: String) -> KeyError {
    KeyError { key: format!("{POLICY_CC}{below}"), what }
}

/// Extend the schema so that a flow accepts `cubic.beta = 0.7`, a table under its congestion control's name.
pub(super) fn allow_cc_parameters(schema: &mut schemars::Schema) {
    // Only the key `policy` may also have a string as its value: the card.
    let properties = schema.ensure_object().entry("properties");
    properties.or_insert_with(|| serde_json::json!({}))[POLICY_CC] = serde_json::json!({
        "type": ["string", "object"],
        "description": "Card of a flow with cc = \"policy\", or a table with the card and parameters.",
    });
    schema.insert(
        "unevaluatedProperties".to_owned(),
        serde_json::json!({
            "type": "object",
            "description": "Parameters of the congestion control with this name.",
        }),
    );
}

/// Keys that all kinds of flows have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct FlowKeys {
    /// End that opens the connection, and sends or requests: "from" or "to".
    pub from: End,
    /// Start of the flow, counted from the run's start; less than the run's duration.
    pub start: Duration,
    /// Largest random delay of the flow's start after `start`, drawn uniformly with the run's seed, for
    /// each of the `count` flows separately.
    #[serde(skip_serializing_if = "is_zero")]
    pub start_spread: Duration,
    /// Stop of the flow, counted from the run's start; more than `start`. Default: the run's end. Not
    /// together with `bytes`.
    pub stop: Option<Duration>,
    /// Number of flows with these keys, 0 to 10000.
    pub count: u32,
    /// Links that the flow crosses, from the end `from` to the end `to`: names of `[links]`, and "path" for
    /// the link of `[path]` and `[link]`. At least one link, and no link twice.
    #[serde(skip_serializing_if = "is_path_alone")]
    pub via: Vec<String>,
    /// Sites of the client and of the server, in place of `from` and `via`; only in a scenario with `[network]`, and
    /// required there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub between: Option<[String; 2]>,
    /// Additional round trip of this flow alone, without queueing; half of it each way.
    #[serde(skip_serializing_if = "is_zero")]
    pub extra_rtt: Duration,
    /// DSCP of the flow's packets in both directions ("cs0", "ef", "af11" …); queues with classes, such as
    /// cake's tins, distinguish flows by it.
    #[serde(skip_serializing_if = "is_best_effort")]
    pub dscp: Dscp,
}

impl Default for FlowKeys {
    fn default() -> Self {
        Self {
            from: End::default(),
            start: Duration::ZERO,
            start_spread: Duration::ZERO,
            stop: None,
            count: 1,
            via: vec![PATH_LINK.to_owned()],
            between: None,
            extra_rtt: Duration::ZERO,
            dscp: Dscp::default(),
        }
    }
}

fn is_path_alone(via: &[String]) -> bool {
    via == [PATH_LINK]
}

fn is_best_effort(dscp: &Dscp) -> bool {
    *dscp == Dscp::default()
}

/// Kind of flow: an application over TCP, or one over UDP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[schemars(tag = "kind", transform = by_kind::optional_kind::<Self>)]
#[expect(clippy::large_enum_variant, reason = "there are few, one for each entry")]
pub enum FlowKind {
    /// Application that runs over TCP.
    Tcp(TcpFlowKeys),
    /// Probe over UDP: packets that the other end echoes.
    Probe(Probe),
    /// Call with audio and video in both directions over UDP.
    Call(Call),
}

impl Kinds for FlowKind {
    const NOUN: &'static str = "a flow";
    const DEFAULT: Option<&'static str> = Some("tcp");
}

/// Keys of a `[[flow]]` of kind "tcp": an application over TCP.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TcpFlowKeys {
    /// Congestion control: a name from `skyhop list cc`, or your own file in C ("./mine.c"), Python
    /// ("./mine.py", simulator only) or TOML (a policy's card).
    pub cc: String,
    /// Size of a bulk transfer, whose completion time is reported; above 0. In place of `stop`. Default:
    /// no limit; the transfer lasts until the flow's stop.
    pub bytes: Option<Bytes>,
    /// Application at the two ends: a table with `kind` from `skyhop list apps` and the keys of that kind.
    /// Default: a bulk transfer.
    #[serde(with = "by_kind", skip_serializing_if = "is_bulk")]
    #[schemars(with = "App")]
    pub app: App,
    /// TCP settings of this flow; they override those of `[tcp]` key by key.
    #[serde(skip_serializing_if = "is_empty_tcp")]
    pub tcp: TcpKeys,
}

impl TcpFlowKeys {
    /// Return the application, with the flow's `bytes` as the size of a bulk transfer.
    pub fn app(&self) -> App {
        match &self.app {
            App::Bulk(bulk) => App::Bulk(Bulk { bytes: bulk.bytes.or(self.bytes), ..bulk.clone() }),
            other => other.clone(),
        }
    }

    /// Return the flow's own TCP keys. For web pages `nodelay` is true by default, because browsers and
    /// web servers set TCP_NODELAY.
    pub(crate) fn own_tcp(&self, all_flows: &TcpKeys) -> TcpKeys {
        let mut own = self.tcp.clone();
        if matches!(self.app, App::Page(_)) && all_flows.nodelay.is_none() {
            own.nodelay = own.nodelay.or(Some(true));
        }
        own
    }
}

fn is_bulk(app: &App) -> bool {
    *app == App::default()
}

/// Whether the keys equal the defaults: they are then omitted, so that run ids (hash of the resolved
/// scenario) stay stable across versions.
pub(super) fn is_default_tcp(keys: &TcpKeys) -> bool {
    keys.values() == TcpOptions::default()
}

fn is_empty_tcp(keys: &TcpKeys) -> bool {
    *keys == TcpKeys::default()
}

pub(super) fn serialize_tcp_values<S: Serializer>(
    keys: &TcpKeys,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    keys.values().serialize(serializer)
}

/// Return the TCP keys to write for a flow in addition to `[tcp]`; no keys if all values of the
/// flow equal those of `[tcp]`.
pub(super) fn explicit_tcp_keys(own: &TcpKeys, all_flows: &TcpKeys) -> TcpKeys {
    let values = own.clone().or(all_flows.clone()).values();
    let all_flows = all_flows.values();
    if values == all_flows {
        return TcpKeys::default();
    }
    // Written out, because a default that follows from the flow's profile would otherwise be
    // replaced by the value of `[tcp]` when the result is read back.
    let rmem = if values.rmem == all_flows.rmem { own.rmem } else { Some(values.rmem.into()) };
    // `ecn`, `nodelay` and `cork` are written even if unchanged, as earlier versions did, so that run ids
    // (hash of the resolved scenario) stay stable.
    let TcpOptions { ecn, nodelay, cork, .. } = values;
    TcpKeys { rmem, ecn: Some(ecn), nodelay: Some(nodelay), cork: Some(cork), ..own.clone() }
}

impl Kinds for App {
    const NOUN: &'static str = "an application";
}

impl Default for TcpFlowKeys {
    fn default() -> Self {
        Self { cc: "cubic".to_owned(), bytes: None, app: App::default(), tcp: TcpKeys::default() }
    }
}

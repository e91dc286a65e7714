//! Cards of learned congestion controls, with their networks.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, OnceLock};

use include_dir::{Dir, include_dir};
use sha2::{Digest as _, Sha256};
use skyhop_cc::{CcError, Controller, Decider, Instance, Module, Registry, Setup};
use skyhop_model::{
    CcLanguage, OUR_CC, POLICY_CC, cc_language, our_card, our_card_name, our_cc_name, plain_cc_name,
};
use skyhop_policy::{Card, Model, Pilot, Policy, PolicyError};
use skyhop_units::Duration;

use crate::error::CcFileError;
use crate::sources::{Sources, hex};

static CARDS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../data/policies");

/// A card holds no more bytes.
pub(crate) const MOST_CARD: u64 = 1 << 20;
/// A network's file holds no more bytes.
pub(crate) const MOST_NETWORK: u64 = 256 << 20;

/// The parameter that is no one of `cc/policy.c`: how long a decision takes in the simulator.
const DELAY: &str = "delay";

/// A card whose flows get what it decides.
#[derive(Debug)]
pub struct LoadedPolicy {
    /// The card and its network, with their digests.
    pub sources: Sources,
    /// What it decides with.
    pub policy: Policy,
}

/// Where a card's network is.
pub(crate) struct NetworkFile {
    pub(crate) file: PathBuf,
    /// Where its authors publish it.
    pub(crate) published: String,
}

/// The cards that come with skyhop, most of which lack their weights: name and text, in alphabetical order.
pub fn policy_cards() -> Vec<(&'static str, &'static str)> {
    let of = |file: &'static include_dir::File<'_>| {
        let name = file.path().to_str()?.strip_suffix(".toml")?;
        Some((name, file.contents_utf8()?))
    };
    let mut cards: Vec<_> = CARDS.files().filter_map(of).collect();
    cards.sort_unstable();
    cards
}

/// The network of a card that comes with skyhop, where that has its weights.
pub fn policy_network(name: &str) -> Option<&'static [u8]> {
    let card = CARDS.get_file(format!("{name}.toml"))?.contents_utf8()?;
    let network = Card::parse(card).ok()?.network;
    Some(CARDS.get_file(network.file)?.contents())
}

/// What a flow has for its congestion control where it has this card: the name of one that comes with skyhop, or a file.
pub fn card_of(card: &str) -> PathBuf {
    match policy_cards().iter().any(|(name, _)| *name == card) {
        true => PathBuf::from(our_card(card)),
        false => PathBuf::from(card),
    }
}

/// Reads a card without its network, one of those that come with skyhop by its name, or a file: what is seen and done is
/// the same whoever decides.
///
/// # Errors
/// What is wrong with the file.
pub fn read_card(card: &str) -> Result<Card, CcFileError> {
    parse(card, &read(&card_of(card), MOST_CARD, "")?)
}

/// Reads a card and its network; flows that name the card get what it decides from now on.
///
/// # Errors
/// What is wrong with either file.
pub fn load_policy(file: &Path) -> Result<LoadedPolicy, CcFileError> {
    let sources = Sources::read(file)?;
    let name = sources.file().to_owned();
    let content = read(Path::new(&name), MOST_CARD, "")?;
    let card = parse(&name, &content)?;
    let network = network_of(Path::new(&name), &content)?;
    let onnx = read(&network.file, MOST_NETWORK, &network.published)?;
    // What runs is what the digests are of.
    for (file, content) in [(Path::new(&name), &content), (network.file.as_path(), &onnx)] {
        let digest = sources.digests().get(&*file.to_string_lossy());
        if digest.is_none_or(|digest| *digest != hex(&Sha256::digest(content))) {
            return Err(CcFileError::Changed { file: file.to_string_lossy().into_owned() });
        }
    }
    let policy = decided(card, &network.file, &onnx)?;
    let made = policy.clone();
    // What the card says of TCP is wrong now, and not in the run.
    controller(&policy, &Setup::default())?;
    Registry::global().adopt(plain_cc_name(&name), move |setup| controller(&made, setup));
    Ok(LoadedPolicy { sources, policy })
}

type PythonReader = fn(&Path) -> Result<Arc<dyn Model>, String>;

static PYTHON: OnceLock<PythonReader> = OnceLock::new();

/// Has files in Python, in the places of networks, read by `read`; whoever brings Python says so once.
pub fn decide_in_python(read: PythonReader) {
    // A second time it is the same.
    PYTHON.get_or_init(|| read);
}

/// A card with what decides: a network, or a function in Python.
fn decided(card: Card, file: &Path, content: &[u8]) -> Result<Policy, CcFileError> {
    let name = file.to_string_lossy();
    if cc_language(&name) != Some(CcLanguage::Python) {
        return Policy::with_network(card, content).map_err(|error| wrong(&name, &error));
    }
    let refused = |what: String| CcFileError::Policy { file: name.clone().into_owned(), what };
    if !card.network.memory.is_empty() {
        let what = "network.memory is for networks: a function remembers by itself";
        return Err(refused(what.to_owned()));
    }
    let read = PYTHON.get().ok_or_else(|| refused("there is no Python here".to_owned()))?;
    let model = read(file).map_err(|what| CcFileError::Decide { what })?;
    Ok(Policy::with_model(card, model))
}

impl LoadedPolicy {
    /// What `cc/policy.c` is set to in the kernel: the card's parameters before those that are given, without the delay,
    /// which takes as long as it takes there.
    pub fn parameters(&self, given: &[(String, String)]) -> Vec<(String, String)> {
        let given = given.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        merged(&self.policy.card, given.filter(|(name, _)| *name != DELAY))
    }
}

/// One for a connection of a policy's.
fn controller(policy: &Policy, setup: &Setup<'_>) -> Result<Controller, CcError> {
    decided_by(Box::new(Pilot::new(policy)), &policy.card, setup)
}

/// One for a connection that `decider` decides for as a card says: `cc/policy.c` with the card's parameters before those
/// of the scenario.
///
/// # Errors
/// What is wrong with the parameters.
pub fn decided_by(
    decider: Box<dyn Decider>,
    card: &Card,
    setup: &Setup<'_>,
) -> Result<Controller, CcError> {
    let given = setup.params.iter().copied();
    let (delays, given): (Vec<_>, Vec<_>) = given.partition(|(name, _)| *name == DELAY);
    let delay = delays.last().map_or(Ok(Duration::ZERO), |(_, value)| {
        value.parse().map_err(|_| CcError::BadValue {
            module: POLICY_CC.to_owned(),
            param: DELAY.to_owned(),
            value: (*value).to_owned(),
            expected: "a time such as \"2 ms\"".to_owned(),
        })
    })?;
    let params = merged(card, given.into_iter());
    let params: Vec<(&str, &str)> = params.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    let setup = Setup { params: &params, ..*setup };
    let instance = Instance::with_setup(Module::find(POLICY_CC)?, &setup)?;
    Ok(Box::new(instance.decided_by(decider, delay)))
}

/// What a card sets `cc/policy.c` to, with what is given instead.
fn merged<'a>(
    card: &Card,
    given: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<(String, String)> {
    let text =
        |value: &toml::Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let mut params: Vec<(String, String)> =
        card.tcp.iter().map(|(name, value)| (name.clone(), text(value))).collect();
    for (name, value) in given {
        params.retain(|(known, _)| known != name);
        params.push((name.to_owned(), value.to_owned()));
    }
    params
}

fn parse(name: &str, content: &[u8]) -> Result<Card, CcFileError> {
    let text = std::str::from_utf8(content).map_err(|_| CcFileError::Policy {
        file: name.to_owned(),
        what: "is no text".to_owned(),
    })?;
    Card::parse(text).map_err(|error| wrong(name, &error))
}

fn wrong(file: &str, error: &PolicyError) -> CcFileError {
    CcFileError::Policy { file: file.to_owned(), what: error.to_string() }
}

/// The network of a card: a file beside it, or below its directory.
pub(crate) fn network_of(card: &Path, content: &[u8]) -> Result<NetworkFile, CcFileError> {
    let name = card.to_string_lossy();
    let network = parse(&name, content)?.network;
    let inside = Path::new(&network.file);
    let is_inside = inside.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if !is_inside || network.file.is_empty() {
        let what = format!("network.file: `{}` is not beside the card", network.file);
        return Err(CcFileError::Policy { file: name.into_owned(), what });
    }
    let file = if our_card_name(&name).is_some() {
        PathBuf::from(format!("{OUR_CC}{}", network.file))
    } else {
        whole(card).parent().unwrap_or(Path::new("")).join(inside)
    };
    Ok(NetworkFile { file, published: network.published })
}

/// The whole name of a file; of one that comes with skyhop that is its name.
pub(crate) fn whole(file: &Path) -> PathBuf {
    if our_cc_name(&file.to_string_lossy()).is_some() {
        return file.to_owned();
    }
    absolute(file).unwrap_or_else(|_| file.to_owned())
}

/// The content of a file that holds `most` bytes at most, or of one that comes with skyhop.
pub(crate) fn read(file: &Path, most: u64, published: &str) -> Result<Vec<u8>, CcFileError> {
    let name = || file.to_string_lossy().into_owned();
    if let Some(ours) = our_cc_name(&name()).and_then(|ours| CARDS.get_file(ours)) {
        return Ok(ours.contents().to_owned());
    }
    let failed = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound if !published.is_empty() => {
            CcFileError::NoNetwork { file: name(), advice: published.to_owned() }
        }
        _ => CcFileError::Read { file: name(), reason: error.to_string() },
    };
    let opened = File::open(file).map_err(failed)?;
    let metadata = opened.metadata().map_err(failed)?;
    if !metadata.is_file() {
        return Err(CcFileError::Policy { file: name(), what: "is no file".to_owned() });
    }
    let mut content = Vec::new();
    opened.take(most + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > most {
        let what = format!("holds more than {} MB", most >> 20);
        return Err(CcFileError::Policy { file: name(), what });
    }
    Ok(content)
}

//! Cards of learned congestion controls, and their networks.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf, absolute};
use std::sync::{Arc, OnceLock};

use include_dir::{Dir, include_dir};
use sha2::{Digest as _, Sha256};
use skyhop_cc::{Announcements, CcError, Controller, Decider, Instance, Module, Registry, Setup};
use skyhop_model::{
    CcLanguage, POLICY_CC, SKYHOP_CC_PREFIX, cc_language, plain_cc_name, shipped_card,
    shipped_card_name, skyhop_cc_name,
};
use skyhop_policy::{Card, Model, Policy, PolicyDecider, PolicyError};
use skyhop_units::Duration;

use crate::error::CcFileError;
use crate::sources::{Sources, hex};

static CARDS: Dir<'_> = include_dir!("$CARGO_MANIFEST_DIR/../../data/policies");

/// Largest size of a card, in bytes.
pub(crate) const MOST_CARD: u64 = 1 << 20;
/// Largest size of a network's file, in bytes.
pub(crate) const MOST_NETWORK: u64 = 256 << 20;

/// Parameter that `cc/policy.c` does not have: time that a decision takes in the simulator.
const DELAY: &str = "delay";

/// Loaded card that flows can use as their congestion control.
#[derive(Debug)]
pub struct LoadedPolicy {
    /// Source files: the card and its network, with their digests.
    pub sources: Sources,
    /// Policy of the card: its network or Python function.
    pub policy: Policy,
}

/// Location of a card's network.
pub(crate) struct NetworkFile {
    pub(crate) file: PathBuf,
    /// Advice on where the authors publish the network; empty if there is none.
    pub(crate) published: String,
}

/// Cards that come with skyhop, most of them without weights: name and text, in alphabetical order.
pub fn policy_cards() -> Vec<(&'static str, &'static str)> {
    let entry = |file: &'static include_dir::File<'_>| {
        let name = file.path().to_str()?.strip_suffix(".toml")?;
        Some((name, file.contents_utf8()?))
    };
    let mut cards: Vec<_> = CARDS.files().filter_map(entry).collect();
    cards.sort_unstable();
    cards
}

/// Network file of a card that comes with skyhop, if its weights come with it.
pub fn policy_network(name: &str) -> Option<&'static [u8]> {
    let card = CARDS.get_file(format!("{name}.toml"))?.contents_utf8()?;
    let network = Card::parse(card).ok()?.network;
    Some(CARDS.get_file(network.file)?.contents())
}

/// Path by which a flow names this card: `skyhop:NAME` for a card that comes with skyhop, else the card's file.
pub fn card_path(card: &str) -> PathBuf {
    match policy_cards().iter().any(|(name, _)| *name == card) {
        true => PathBuf::from(shipped_card(card)),
        false => PathBuf::from(card),
    }
}

/// Read a card without its network; `card` is the name of one that comes with skyhop, or a file. The card's
/// observations and actions also apply to an external policy.
///
/// # Errors
/// The file cannot be read or is wrong.
pub fn read_card(card: &str) -> Result<Card, CcFileError> {
    parse(card, &read(&card_path(card), MOST_CARD, "")?)
}

/// Read a card and its network, and register the card as a congestion control for flows.
///
/// # Errors
/// One of the two files cannot be read or is wrong.
pub fn load_policy(file: &Path) -> Result<LoadedPolicy, CcFileError> {
    let sources = Sources::read(file)?;
    let name = sources.file().to_owned();
    let content = read(Path::new(&name), MOST_CARD, "")?;
    let card = parse(&name, &content)?;
    let network = network_of(Path::new(&name), &content)?;
    let onnx = read(&network.file, MOST_NETWORK, &network.published)?;
    // The digests must be those of the content that runs.
    for (file, content) in [(Path::new(&name), &content), (network.file.as_path(), &onnx)] {
        let digest = sources.digests().get(&*file.to_string_lossy());
        if digest.is_none_or(|digest| *digest != hex(&Sha256::digest(content))) {
            return Err(CcFileError::Changed { file: file.to_string_lossy().into_owned() });
        }
    }
    let policy = build_policy(card, &network.file, &onnx)?;
    let (shared, card) = (policy.clone(), policy.card.clone());
    // Check the card's TCP parameters now, not during the run.
    controller(&policy, &Setup::default())?;
    let module = Module::find(POLICY_CC)?;
    let announcements = move |given: &[(&str, &str)]| {
        let parameters = parameters_for_tcp(&card, given.iter().copied());
        let parameters: Vec<(&str, &str)> =
            parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        Announcements { are_used: card.uses_announcements(), ..module.announcements(&parameters) }
    };
    Registry::global()
        .adopt(plain_cc_name(&name), announcements, move |setup| controller(&shared, setup));
    Ok(LoadedPolicy { sources, policy })
}

type PythonReader = fn(&Path) -> Result<Arc<dyn Model>, String>;

static PYTHON: OnceLock<PythonReader> = OnceLock::new();

/// Set the reader of Python files that take the place of networks; called once by the Python bindings.
pub fn set_python_reader(read: PythonReader) {
    // A second call would set the same reader.
    PYTHON.get_or_init(|| read);
}

type PythonModules = fn(&Path) -> Result<Vec<PathBuf>, String>;

static PYTHON_MODULES: OnceLock<PythonModules> = OnceLock::new();

/// Set the function that lists the modules which a Python file imports from its directory; called once by the Python
/// bindings.
pub fn set_python_modules(list: PythonModules) {
    // A second call would set the same function.
    PYTHON_MODULES.get_or_init(|| list);
}

/// Modules that a Python file imports from its directory; none in a program without Python, which cannot run it.
pub(crate) fn python_modules(file: &Path) -> Result<Vec<PathBuf>, CcFileError> {
    let Some(list) = PYTHON_MODULES.get() else { return Ok(Vec::new()) };
    list(file).map_err(|what| CcFileError::Decide { what })
}

/// Build the policy of a card: its network, or a function in Python.
fn build_policy(card: Card, file: &Path, content: &[u8]) -> Result<Policy, CcFileError> {
    let name = file.to_string_lossy();
    if cc_language(&name) != Some(CcLanguage::Python) {
        return Policy::with_network(card, content).map_err(|error| wrong(&name, &error));
    }
    let refused = |what: String| CcFileError::Policy { file: name.clone().into_owned(), what };
    if !card.network.memory.is_empty() {
        let what = "network.memory is for networks: a Python function keeps its own state";
        return Err(refused(what.to_owned()));
    }
    let read = PYTHON
        .get()
        .ok_or_else(|| refused("Python is not available in this program".to_owned()))?;
    let model = read(file).map_err(|what| CcFileError::Decide { what })?;
    Ok(Policy::with_model(card, model))
}

impl LoadedPolicy {
    /// Parameters of `cc/policy.c` in the kernel: those of the card, overridden by `given`. The delay is left out,
    /// because it applies only in the simulator.
    pub fn parameters(&self, given: &[(String, String)]) -> Vec<(String, String)> {
        let given = given.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        parameters_for_tcp(&self.policy.card, given)
    }
}

/// Create the controller of a connection whose decisions come from the policy.
fn controller(policy: &Policy, setup: &Setup<'_>) -> Result<Controller, CcError> {
    controller_decided_by(Box::new(PolicyDecider::new(policy)), &policy.card, setup)
}

/// Create the controller of a connection whose decisions come from `decider`: `cc/policy.c` with the card's
/// parameters, overridden by those of the scenario.
///
/// # Errors
/// A parameter is unknown or has a wrong value.
pub fn controller_decided_by(
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
    Ok(Box::new(instance.with_decider(decider, delay)))
}

/// Parameters of `cc/policy.c` in the card, overridden by `given` without the delay.
fn parameters_for_tcp<'a>(
    card: &Card,
    given: impl Iterator<Item = (&'a str, &'a str)>,
) -> Vec<(String, String)> {
    merged(card, given.filter(|(name, _)| *name != DELAY))
}

/// Parameters of `cc/policy.c` in the card, overridden by `given`.
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
        what: "is not UTF-8 text".to_owned(),
    })?;
    Card::parse(text).map_err(|error| wrong(name, &error))
}

fn wrong(file: &str, error: &PolicyError) -> CcFileError {
    CcFileError::Policy { file: file.to_owned(), what: error.to_string() }
}

/// Network file of a card, which must be in the card's directory or in a subdirectory.
pub(crate) fn network_of(card: &Path, content: &[u8]) -> Result<NetworkFile, CcFileError> {
    let name = card.to_string_lossy();
    let network = parse(&name, content)?.network;
    let inside = Path::new(&network.file);
    let is_inside = inside.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if !is_inside || network.file.is_empty() {
        let what =
            format!("network.file: `{}` is not in the card's directory or below it", network.file);
        return Err(CcFileError::Policy { file: name.into_owned(), what });
    }
    let file = if shipped_card_name(&name).is_some() {
        PathBuf::from(format!("{SKYHOP_CC_PREFIX}{}", network.file))
    } else {
        absolute_path(card).parent().unwrap_or(Path::new("")).join(inside)
    };
    Ok(NetworkFile { file, published: network.published })
}

/// Absolute path of a user's file; for a file that comes with skyhop, its unchanged name.
pub(crate) fn absolute_path(file: &Path) -> PathBuf {
    if skyhop_cc_name(&file.to_string_lossy()).is_some() {
        return file.to_owned();
    }
    absolute(file).unwrap_or_else(|_| file.to_owned())
}

/// Read a user's file of at most `most` bytes, or a file that comes with skyhop.
pub(crate) fn read(file: &Path, most: u64, published: &str) -> Result<Vec<u8>, CcFileError> {
    let name = || file.to_string_lossy().into_owned();
    if let Some(ours) = skyhop_cc_name(&name()).and_then(|ours| CARDS.get_file(ours)) {
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
        return Err(CcFileError::Policy { file: name(), what: "is not a regular file".to_owned() });
    }
    let mut content = Vec::new();
    opened.take(most + 1).read_to_end(&mut content).map_err(failed)?;
    if content.len() as u64 > most {
        let what = format!("is larger than {} MB", most >> 20);
        return Err(CcFileError::Policy { file: name(), what });
    }
    Ok(content)
}

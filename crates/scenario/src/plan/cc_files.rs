//! Congestion controls in the user's files, which are found, compiled and loaded before any other
//! part of the experiment is built.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, absolute};

use skyhop_cc::Module;
use skyhop_ccfile::{Sources, load, load_policy};
use skyhop_model::{CcLanguage, cc_language, shipped_card_name};

use crate::ScenarioError;
use crate::catalogue::find_file;
use crate::named::NamedScenario;
use crate::types::FlowKind;

/// Congestion controls of a scenario that come from the user's files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CcFiles {
    /// Compiled and loaded modules in C.
    pub in_c: Vec<&'static Module>,
    /// Absolute paths of modules in Python.
    pub in_python: Vec<String>,
    /// SHA-256 of the source files of all modules, by absolute path.
    pub digests: BTreeMap<String, String>,
    /// Messages of the compiler, from successful compilations that were not cached.
    pub messages: String,
}

impl CcFiles {
    fn add_in_c(&mut self, name: &str) -> Result<(), ScenarioError> {
        let loaded = load(Path::new(name))?;
        self.digests.extend(loaded.sources.digests().clone());
        self.in_c.push(loaded.module);
        if loaded.compiled.is_new {
            self.messages += &loaded.compiled.messages;
        }
        Ok(())
    }
}

impl NamedScenario {
    /// Compile and load the user's congestion controls in C, and read cards with their networks.
    ///
    /// # Errors
    /// A file is wrong, or this machine lacks a compiler or library.
    pub fn load_cc_files(&self) -> Result<CcFiles, ScenarioError> {
        let mut files = CcFiles::default();
        for name in self.cc_file_names() {
            match cc_language(&name) {
                Some(CcLanguage::Python) => {
                    files.digests.extend(Sources::read(Path::new(&name))?.digests().clone());
                    files.in_python.push(name);
                }
                Some(CcLanguage::Card) => {
                    let loaded = load_policy(Path::new(&name))?;
                    files.digests.extend(loaded.sources.digests().clone());
                }
                Some(CcLanguage::C) | None => files.add_in_c(&name)?,
            }
        }
        Ok(files)
    }

    /// Return the SHA-256 of all source files of the flows' congestion controls, by absolute path.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn cc_file_digests(&self) -> Result<BTreeMap<String, String>, ScenarioError> {
        let mut digests = BTreeMap::new();
        for name in self.cc_file_names() {
            digests.extend(Sources::read(Path::new(&name))?.digests().clone());
        }
        Ok(digests)
    }

    /// Map each flow's `cc` to a name that is valid in any directory: files become absolute paths.
    pub fn congestion_controls(&self) -> BTreeMap<String, String> {
        let flows = self.scenario.flow.iter().filter_map(|flow| match &flow.kind {
            FlowKind::Tcp(tcp) => Some(&tcp.cc),
            FlowKind::Probe(_) | FlowKind::Call(_) => None,
        });
        let network = self.scenario.network.as_ref();
        let traffic = network.and_then(|network| network.traffic.as_ref());
        let names = flows.chain(traffic.map(|traffic| &traffic.tcp.cc));
        names.map(|cc| (cc.clone(), self.absolute_cc(cc))).collect()
    }

    fn cc_file_names(&self) -> BTreeSet<String> {
        let whole = self.congestion_controls().into_values();
        whole.filter(|cc| cc_language(cc).is_some()).collect()
    }

    /// Return a congestion control's name; if it is the name of a file, as an absolute path.
    pub(crate) fn absolute_cc(&self, cc: &str) -> String {
        let is_file = cc_language(cc).is_some() && shipped_card_name(cc).is_none();
        let found = is_file.then(|| find_file(self.base(), cc)).flatten();
        let whole = found.and_then(|file| absolute(file).ok());
        whole.map_or_else(|| cc.to_owned(), |whole| whole.to_string_lossy().into_owned())
    }
}

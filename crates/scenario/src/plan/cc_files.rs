//! Congestion controls in files of the user's: found, compiled and loaded before anything else is made.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, absolute};

use skyhop_cc::Module;
use skyhop_ccfile::{Sources, load, load_policy};
use skyhop_model::{CcLanguage, cc_language, our_card_name};

use crate::ScenarioError;
use crate::catalogue::find_file;
use crate::named::NamedScenario;
use crate::types::FlowKind;

/// The congestion controls of a scenario that are files of the user's.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CcFiles {
    /// Those in C, by their whole names, compiled and loaded.
    pub in_c: Vec<&'static Module>,
    /// Those in Python, by their whole names.
    pub in_python: Vec<String>,
    /// All files that they are made of, by their whole names: the SHA-256 of each.
    pub digests: BTreeMap<String, String>,
    /// What the compiler had to say where it was called now and did it.
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
    /// Compiles and loads the congestion controls in C that are files of the user's, and reads cards with their networks.
    ///
    /// # Errors
    /// What is wrong with a file, or what this machine lacks.
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

    /// All files that the flows' congestion controls are made of, by their whole names: the SHA-256 of each.
    ///
    /// # Errors
    /// One cannot be read.
    pub fn cc_file_digests(&self) -> Result<BTreeMap<String, String>, ScenarioError> {
        let mut digests = BTreeMap::new();
        for name in self.cc_file_names() {
            digests.extend(Sources::read(Path::new(&name))?.digests().clone());
        }
        Ok(digests)
    }

    /// What its flows call their congestion controls, and what those are called from any directory.
    pub fn congestion_controls(&self) -> BTreeMap<String, String> {
        let named = self.scenario.flow.iter().filter_map(|flow| match &flow.kind {
            FlowKind::Tcp(tcp) => Some((tcp.cc.clone(), self.whole_cc(&tcp.cc))),
            FlowKind::Probe(_) | FlowKind::Call(_) => None,
        });
        named.collect()
    }

    fn cc_file_names(&self) -> BTreeSet<String> {
        let whole = self.congestion_controls().into_values();
        whole.filter(|cc| cc_language(cc).is_some()).collect()
    }

    /// What a flow calls its congestion control: a file by its whole name.
    pub(crate) fn whole_cc(&self, cc: &str) -> String {
        let is_file = cc_language(cc).is_some() && our_card_name(cc).is_none();
        let found = is_file.then(|| find_file(self.base(), cc)).flatten();
        let whole = found.and_then(|file| absolute(file).ok());
        whole.map_or_else(|| cc.to_owned(), |whole| whole.to_string_lossy().into_owned())
    }
}

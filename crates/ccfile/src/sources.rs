//! The files that a congestion control is made of.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use skyhop_model::{CcLanguage, MOST_CC_LETTERS, cc_language};

use crate::error::CcFileError;
use crate::headers;
use crate::policy;

/// A congestion control's file, and the headers of the user's that it includes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    file: String,
    language: CcLanguage,
    digests: BTreeMap<String, String>,
    hears: bool,
}

impl Sources {
    /// Reads a file, and what it includes in quotes from beside it.
    ///
    /// # Errors
    /// [`CcFileError::Read`], [`CcFileError::Name`], [`CcFileError::OtherHeader`].
    pub fn read(file: &Path) -> Result<Self, CcFileError> {
        let whole = policy::whole(file);
        let name = whole.to_string_lossy().into_owned();
        let Some(language) = cc_language(&name).filter(|_| is_named_well(&whole)) else {
            return Err(CcFileError::Name { file: name });
        };
        let mut sources = Self { file: name, language, digests: BTreeMap::new(), hears: false };
        sources.add(&whole)?;
        Ok(sources)
    }

    /// The whole name of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// What it is written in.
    pub fn language(&self) -> CcLanguage {
        self.language
    }

    /// The SHA-256 of each file, by its whole name.
    pub fn digests(&self) -> &BTreeMap<String, String> {
        &self.digests
    }

    /// The file's name without its ending.
    pub(crate) fn name(&self) -> &str {
        skyhop_model::cc_table(&self.file)
    }

    /// Whether it looks at what is announced.
    pub(crate) fn hears(&self) -> bool {
        self.hears
    }

    fn add(&mut self, file: &Path) -> Result<(), CcFileError> {
        let name = file.to_string_lossy().into_owned();
        if self.digests.contains_key(&name) {
            return Ok(());
        }
        let content = match self.language {
            CcLanguage::Card => policy::read(file, policy::MOST_CARD, "")?,
            _ => fs::read(file).map_err(|error| CcFileError::Read {
                file: name.clone(),
                reason: error.to_string(),
            })?,
        };
        self.check_header(file, &name, &content)?;
        self.digests.insert(name, hex(&Sha256::digest(&content)));
        match self.language {
            CcLanguage::C => {}
            CcLanguage::Python => return Ok(()),
            CcLanguage::Card => return self.add_network(file, &content),
        }
        let text = String::from_utf8_lossy(&content);
        self.hears |= text.contains("skyhop_handover(");
        let beside = file.parent().unwrap_or(Path::new(""));
        included(&text)
            .map(|header| beside.join(header))
            .filter(|header| header.is_file())
            .try_for_each(|header| self.add(&header))
    }

    /// Adds the file of a card's network.
    fn add_network(&mut self, card: &Path, content: &[u8]) -> Result<(), CcFileError> {
        let network = policy::network_of(card, content)?;
        let content = policy::read(&network.file, policy::MOST_NETWORK, &network.published)?;
        self.digests
            .insert(network.file.to_string_lossy().into_owned(), hex(&Sha256::digest(&content)));
        Ok(())
    }

    /// Refuses a header of skyhop's of another version, which a compiler would find first.
    fn check_header(&self, file: &Path, name: &str, content: &[u8]) -> Result<(), CcFileError> {
        let plain = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        match headers::header(plain) {
            Some(own) if own != content => Err(CcFileError::OtherHeader {
                file: self.file.clone(),
                header: name.to_owned(),
                name: plain.to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

/// Whether the kernel takes the name of a file in C: others never get there.
fn is_named_well(file: &Path) -> bool {
    if file.extension().is_some_and(|extension| extension != "c") {
        return true;
    }
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    stem.len() <= MOST_CC_LETTERS
        && stem.starts_with(|c: char| c.is_ascii_alphabetic())
        && stem.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// The files that `#include "FILE"` names. One that is commented out is one too many, which does no harm.
fn included(text: &str) -> impl Iterator<Item = PathBuf> {
    text.lines().filter_map(|line| {
        let directive =
            line.trim_start().strip_prefix('#')?.trim_start().strip_prefix("include")?;
        let (name, _) = directive.trim_start().strip_prefix('"')?.split_once('"')?;
        Some(PathBuf::from(name))
    })
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path, files: &[(&str, &str)]) {
        for (name, text) in files {
            fs::write(directory.join(name), text).unwrap();
        }
    }

    #[test]
    fn a_file_comes_with_the_headers_of_its_own_and_theirs() {
        let place = tempfile::tempdir().unwrap();
        write(
            place.path(),
            &[
                (
                    "idea.c",
                    "#include \"skyhop_cc.h\"\n # include  \"part.h\"\n#include <stdio.h>\n",
                ),
                ("part.h", "#include \"idea.c\"\n#include \"deep.h\"\nint x;\n"),
                ("deep.h", "skyhop_handover(sk, &h)"),
                ("other.h", ""),
            ],
        );
        let sources = Sources::read(&place.path().join("idea.c")).unwrap();
        let names: Vec<_> =
            sources.digests().keys().map(|name| name.rsplit_once('/').unwrap().1).collect();
        assert_eq!(names, ["deep.h", "idea.c", "part.h"]);
        assert!(sources.hears());
        assert_eq!(sources.name(), "idea");
        let empty = Sources::read(&place.path().join("other.h"));
        assert!(matches!(empty, Err(CcFileError::Name { .. })));
        // sha256sum says so.
        let deep = sources.digests().iter().find(|(name, _)| name.ends_with("deep.h")).unwrap().1;
        assert_eq!(*deep, hex(&Sha256::digest("skyhop_handover(sk, &h)")));
        assert_eq!(deep.len(), 64);
    }

    #[test]
    fn names_are_what_the_kernel_takes() {
        let named = |name: &str| is_named_well(Path::new(name));
        for name in ["a.c", "fifteen_letters.c", "Idea2.c", "as long as you like.py"] {
            assert!(named(name), "{name}");
        }
        for name in ["sixteen_letters_.c", "my-idea.c", "2.c", "a b.c", "ä.c", "_a.c"] {
            assert!(!named(name), "{name}");
        }
    }

    #[test]
    fn a_header_of_skyhops_is_taken_as_it_is_or_not_at_all() {
        let place = tempfile::tempdir().unwrap();
        let own = std::str::from_utf8(headers::header("skyhop_cc.h").unwrap()).unwrap();
        write(place.path(), &[("idea.c", "#include \"skyhop_cc.h\"\n"), ("skyhop_cc.h", own)]);
        assert_eq!(Sources::read(&place.path().join("idea.c")).unwrap().digests().len(), 2);
        write(place.path(), &[("skyhop_cc.h", "typedef int u32;\n")]);
        let refused = Sources::read(&place.path().join("idea.c")).unwrap_err();
        assert!(matches!(refused, CcFileError::OtherHeader { .. }), "{refused}");
    }
}

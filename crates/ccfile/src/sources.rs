//! Source files of a congestion control, with their digests.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};
use skyhop_model::{CC_NAME_MAX_LEN, CcLanguage, cc_language};

use crate::error::CcFileError;
use crate::headers;
use crate::policy;

/// File of a congestion control with the user's headers that it includes, or a card with its network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sources {
    file: String,
    language: CcLanguage,
    digests: BTreeMap<String, String>,
    uses_announcements: bool,
}

impl Sources {
    /// Read a file and the headers next to it that it includes in quotes.
    ///
    /// # Errors
    /// [`CcFileError::Read`], [`CcFileError::Name`], [`CcFileError::OtherHeader`].
    pub fn read(file: &Path) -> Result<Self, CcFileError> {
        let path = policy::absolute_path(file);
        let name = path.to_string_lossy().into_owned();
        let Some(language) = cc_language(&name).filter(|_| has_valid_name(&path)) else {
            return Err(CcFileError::Name { file: name });
        };
        let mut sources =
            Self { file: name, language, digests: BTreeMap::new(), uses_announcements: false };
        sources.add(&path)?;
        Ok(sources)
    }

    /// Absolute path of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Language of the file, by its extension.
    pub fn language(&self) -> CcLanguage {
        self.language
    }

    /// SHA-256 of each file, by absolute path.
    pub fn digests(&self) -> &BTreeMap<String, String> {
        &self.digests
    }

    /// File name without its extension.
    pub(crate) fn name(&self) -> &str {
        skyhop_model::cc_table(&self.file)
    }

    /// Whether the source calls `skyhop_handover`, which reads announcements.
    pub(crate) fn uses_announcements(&self) -> bool {
        self.uses_announcements
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
        self.uses_announcements |= text.contains("skyhop_handover(");
        let directory = file.parent().unwrap_or(Path::new(""));
        included(&text)
            .map(|header| directory.join(header))
            .filter(|header| header.is_file())
            .try_for_each(|header| self.add(&header))
    }

    /// Add the digest of a card's network.
    fn add_network(&mut self, card: &Path, content: &[u8]) -> Result<(), CcFileError> {
        let network = policy::network_of(card, content)?;
        let content = policy::read(&network.file, policy::MOST_NETWORK, &network.published)?;
        self.digests
            .insert(network.file.to_string_lossy().into_owned(), hex(&Sha256::digest(&content)));
        Ok(())
    }

    /// Refuse a file with the name of one of skyhop's headers but other content: the compiler would
    /// prefer it to skyhop's own header.
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

/// Whether the file name is valid: the kernel limits the names of C files; other files are never loaded into it.
fn has_valid_name(file: &Path) -> bool {
    if file.extension().is_some_and(|extension| extension != "c") {
        return true;
    }
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    stem.len() <= CC_NAME_MAX_LEN
        && stem.starts_with(|c: char| c.is_ascii_alphabetic())
        && stem.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Files named by `#include "FILE"`. Directives in comments count too, which is harmless.
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
        assert!(sources.uses_announcements());
        assert_eq!(sources.name(), "idea");
        let empty = Sources::read(&place.path().join("other.h"));
        assert!(matches!(empty, Err(CcFileError::Name { .. })));
        // The digest equals the output of sha256sum.
        let deep = sources.digests().iter().find(|(name, _)| name.ends_with("deep.h")).unwrap().1;
        assert_eq!(*deep, hex(&Sha256::digest("skyhop_handover(sk, &h)")));
        assert_eq!(deep.len(), 64);
    }

    #[test]
    fn names_are_what_the_kernel_takes() {
        let named = |name: &str| has_valid_name(Path::new(name));
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

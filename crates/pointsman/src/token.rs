//! The token that an API asks for, as it stands in a file or in the environment.

use std::path::{Path, PathBuf};

use api::{Fault, file};
use clap::Args;

/// The longest token, in octets: it must fit into a header line with room to spare.
const TOKEN_MAX: usize = 1_024;

/// Where a command has the token from.
#[derive(Args, Clone, Debug)]
pub(crate) struct Source {
    /// A file with the API's token, which others may not read; without it, the token is in POINTSMAN_TOKEN
    // Named otherwise than the key, whose flag stands above these commands: else clap would take one for the other.
    #[arg(id = "token_source", long = "token-file", value_name = "FILE", global = true)]
    token_file: Option<PathBuf>,
}

impl Source {
    /// Reads the token, where one is given.
    ///
    /// # Errors
    /// What is wrong with the file, or with the text in the environment.
    pub(crate) fn read(&self) -> Result<Option<String>, Fault> {
        if let Some(path) = &self.token_file {
            return read(path).map(Some);
        }
        match std::env::var("POINTSMAN_TOKEN") {
            Err(std::env::VarError::NotPresent) => Ok(None),
            Ok(text) if text.is_empty() => Ok(None),
            Ok(text) => parse(&text).map(Some),
            Err(std::env::VarError::NotUnicode(_)) => Err("the token is not text".into()),
        }
        .map_err(|what| Fault::whole("POINTSMAN_TOKEN", what, "visible ASCII"))
    }
}

/// Reads the token in the file at `path`.
///
/// # Errors
/// What is wrong with the file; the token itself is never told.
pub(crate) fn read(path: &Path) -> Result<String, Fault> {
    let text = file::read_secret(path, TOKEN_MAX as u64 + 2, "a file with a token")?;
    parse(&text).map_err(|what| Fault::whole(path.to_string_lossy(), what, "one line of visible ASCII"))
}

/// Takes a token from a file's text or the environment: a line end behind it is not part of it.
///
/// # Errors
/// What is wrong.
fn parse(text: &str) -> Result<String, String> {
    let token = text.trim_end_matches(['\n', '\r']);
    if token.is_empty() {
        return Err("the token is empty".into());
    }
    if token.len() > TOKEN_MAX {
        return Err(format!("the token is longer than {TOKEN_MAX} octets"));
    }
    match token.bytes().find(|byte| !byte.is_ascii_graphic()) {
        Some(byte) => Err(format!("the token has the character '{}'", byte.escape_ascii())),
        None => Ok(token.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_one_visible_line() {
        for (text, token) in [
            ("secret\n", Ok("secret")),
            ("secret\r\n", Ok("secret")),
            ("a-b_c~1+/=", Ok("a-b_c~1+/=")),
            ("\n", Err("the token is empty")),
            ("two words", Err("the token has the character ' '")),
            ("two\nlines", Err("the token has the character '\\n'")),
        ] {
            assert_eq!(parse(text), token.map(str::to_owned).map_err(str::to_owned), "for {text:?}");
        }
        assert!(parse(&"x".repeat(TOKEN_MAX)).is_ok());
        assert!(parse(&"x".repeat(TOKEN_MAX + 1)).is_err());
    }
}

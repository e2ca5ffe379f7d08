//! Parameters of SVCB and HTTPS records that the scanner reads otherwise than they are meant: those that are written by
//! their numbers, as `key1=...`, whose value's octets are the parameter's (RFC 9460 §2.1), and lists that end with a comma.

use std::collections::BTreeMap;

use dns::Rtype;
use domain::base::iana::SvcParamKey;
use domain::base::rdata::ComposeRecordData;
use domain::zonefile::inplace::Entry;

use super::Scanner;
use super::tokens::Tokens;
use crate::zone::forms;

/// Whether a word is a parameter by its number, or its beginning.
pub(super) fn is_numbered(word: &[u8]) -> bool {
    word.strip_prefix(b"key").is_some_and(|rest| rest.first().is_some_and(u8::is_ascii_digit))
}

/// How the parameter begins that lists keys.
const MANDATORY: &[u8] = b"mandatory=";

/// The parameters whose values are lists (RFC 9460 §7 and §8).
const LISTS: [&[u8]; 4] = [MANDATORY, b"alpn=", b"ipv4hint=", b"ipv6hint="];

/// Whether the last item of a parameter's list is empty, as none may be (RFC 9460 appendix A.1).
pub(super) fn ends_empty(parameter: &[u8]) -> bool {
    let value = parameter.strip_suffix(b"\"").unwrap_or(parameter);
    LISTS.iter().any(|key| parameter.starts_with(key)) && value.ends_with(b",")
}

/// Whether a word may begin such a parameter; what is quoted in it is a word of its own.
pub(super) fn may_end_empty(word: &[u8]) -> bool {
    ends_empty(word) || LISTS.contains(&word)
}

/// The octets of a record's data that has parameters by their numbers; `None` where it has none, or is not read. A
/// relative name is below `origin`, where there is one.
pub(super) fn data(rtype: Rtype, rest: &[u8], origin: Option<&[u8]>) -> Option<Vec<u8>> {
    let words = words(rest);
    let (priority, target) = (words.first()?, words.get(1)?);
    let (numbered, named): (Vec<&[u8]>, Vec<&[u8]>) = words[2..].iter().partition(|word| is_numbered(word));
    if numbered.is_empty() || named.iter().any(|word| ends_empty(word)) {
        return None;
    }
    // The scanner would look for what it lists among the named ones alone.
    let (listing, named): (Vec<&[u8]>, Vec<&[u8]>) =
        named.into_iter().partition(|word| word.starts_with(MANDATORY));
    let target = forms::name(target, origin)?;
    let mut line = format!(". 1 {rtype} ").into_bytes();
    let shown = dns::name::to_text(&target).into_bytes();
    line.extend([&[*priority, &shown][..], &named].concat().join(&b' '));
    let mut scanner = Scanner::new(None);
    scanner.show(&line);
    let Ok(Some(Entry::Record(record))) = scanner.next_entry() else { return None };
    let mut data = Vec::new();
    record.data().compose_rdata(&mut data).expect("appending to a vector cannot fail");
    let mut parameters = BTreeMap::new();
    let named = data.split_off(2 + target.len());
    let mut left = &named[..];
    while let Some((&[upper, lower, length @ ..], behind)) = left.split_first_chunk::<4>() {
        let (value, behind) = behind.split_at_checked(u16::from_be_bytes(length).into())?;
        parameters.insert(u16::from_be_bytes([upper, lower]), value.to_vec());
        left = behind;
    }
    for word in listing {
        if parameters.insert(SvcParamKey::MANDATORY.to_int(), mandatory(&word[MANDATORY.len()..])?).is_some()
        {
            return None;
        }
    }
    for word in numbered {
        let word = &word[b"key".len()..];
        let (key, value) = match word.iter().position(|octet| *octet == b'=') {
            Some(at) => (&word[..at], forms::unescaped(&word[at + 1..])?),
            None => (word, Vec::new()),
        };
        let key = std::str::from_utf8(key).ok().filter(|key| *key == "0" || !key.starts_with('0'))?;
        if parameters.insert(key.parse().ok()?, value).is_some() {
            return None;
        }
    }
    for (key, value) in parameters {
        data.extend(key.to_be_bytes());
        data.extend(u16::try_from(value.len()).ok()?.to_be_bytes());
        data.extend(value);
    }
    Some(data)
}

/// The value of `mandatory`: the keys in ascending order, none twice (RFC 9460 §8); `None` where a word is no key.
fn mandatory(list: &[u8]) -> Option<Vec<u8>> {
    let list = forms::unescaped(list)?;
    let keys = list.split(|octet| *octet == b',').map(SvcParamKey::from_bytes);
    let mut keys: Vec<u16> = keys.map(|key| key.map(SvcParamKey::to_int)).collect::<Option<_>>()?;
    keys.sort_unstable();
    let is_once = keys.windows(2).all(|pair| pair[0] != pair[1]);
    is_once.then(|| keys.into_iter().flat_map(u16::to_be_bytes).collect())
}

/// The words of an entry's rest, each with what is quoted in it.
fn words(rest: &[u8]) -> Vec<&[u8]> {
    let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
    for token in Tokens::new(rest) {
        match ranges.last_mut() {
            Some(last) if last.end == token.start => last.end = token.end,
            _ => ranges.push(token),
        }
    }
    ranges.into_iter().map(|range| &rest[range]).collect()
}

/** Answers with a status of 1xx, which only announce one. No server has reason to send more; each takes time. */
export const MOST_ANNOUNCEMENTS = 32;

export const ANNOUNCED_TOO_OFTEN = `the upstream sent more than ${MOST_ANNOUNCEMENTS} informational answers (1xx)`;

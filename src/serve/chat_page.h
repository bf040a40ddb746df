/* SPDX-License-Identifier: Apache-2.0 */
/* chat_page.h: the page that `tutti serve` hands out at /: a conversation, streamed. It needs nothing beside itself;
 * texts are set as text, never as markup; a key is asked for when the server wants one and kept by the page only. */
#ifndef TUTTI_SERVE_CHAT_PAGE_H
#define TUTTI_SERVE_CHAT_PAGE_H

extern const char chat_page[];

#endif

/* cmd_data.h: the command `tutti data`. argv[0] is "data"; returns the exit status. Order: Local. */
#ifndef TUTTI_CLI_CMD_DATA_H
#define TUTTI_CLI_CMD_DATA_H
int cmd_data(int argc, char **argv);
#endif
